"""Answers malformed JSON-RPC messages with errors."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcParseError,
)
from pygls.protocol import LanguageServerProtocol

LONGEST: Final = 256 * 1024 * 1024
"""The most bytes of one message."""

_REFUSED: Final = object()


class Protocol(LanguageServerProtocol):
    """The protocol, with an error answer for malformed messages instead of a stop."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Convert a message to its type, and refuse wrong parameters."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            refusal = JsonRpcInvalidParams(f"wrong parameters: {_cause(error)}")
            self.refuse(refusal, data.get("id") if "method" in data else None)
            return _REFUSED

    def handle_message(self, message: Any) -> None:
        """Handle a message, and refuse JSON that is not a message."""
        if message is _REFUSED:
            return
        if getattr(message, "jsonrpc", None) != self.VERSION:
            refusal = JsonRpcInvalidRequest("not a JSON-RPC 2.0 message")
            self.refuse(refusal, getattr(message, "id", None))
            return
        super().handle_message(message)

    def refuse(self, error: JsonRpcException, request: str | int | None = None) -> None:
        """Send an error, as the answer to a request or to no request in particular."""
        made = error.to_response_error()
        self._send_data(
            {
                "jsonrpc": self.VERSION,
                "id": request,
                "error": {"code": made.code, "message": made.message},
            }
        )

    def refuse_unreadable(self, error: Exception) -> None:
        """Refuse bytes that are not JSON."""
        self.refuse(JsonRpcParseError(f"invalid JSON: {error}"))


class BoundedInput:
    """A stream of messages of limited length."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.readline = stream.readline

    def read(self, size: int) -> bytes:
        """Read the body of a message; one that is too long is left for the next header."""
        return self._stream.read(size) if size <= LONGEST else b"too long"


def _cause(error: BaseException) -> str:
    """Return the innermost reason with a message, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    return " ".join(str(error).split())
