"""What becomes of messages that are none: an error for whoever sent them, and nothing else."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcParseError,
)
from pygls.protocol import LanguageServerProtocol

__all__ = ["BoundedInput", "Protocol"]

LONGEST: Final = 256 * 1024 * 1024
"""Bytes that one message may have."""

_REFUSED: Final = object()


class Protocol(LanguageServerProtocol):
    """Answers what cannot be understood as JSON-RPC asks for, and goes on."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Give a message its type; one with wrong parameters is refused."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            refusal = JsonRpcInvalidParams(f"wrong parameters: {_cause(error)}")
            self.refuse(refusal, data.get("id") if "method" in data else None)
            return _REFUSED

    def handle_message(self, message: Any) -> None:
        """Handle a message; JSON that is no message is refused."""
        if message is _REFUSED:
            return
        if getattr(message, "jsonrpc", None) != self.VERSION:
            refusal = JsonRpcInvalidRequest("no message of JSON-RPC 2.0")
            self.refuse(refusal, getattr(message, "id", None))
            return
        super().handle_message(message)

    def refuse(self, error: JsonRpcException, request: str | int | None = None) -> None:
        """Send an error: as the answer to a request, or to nobody in particular."""
        made = error.to_response_error()
        self._send_data(
            {
                "jsonrpc": self.VERSION,
                "id": request,
                "error": {"code": made.code, "message": made.message},
            }
        )

    def refuse_unreadable(self, error: Exception) -> None:
        """Refuse bytes that are no JSON."""
        self.refuse(JsonRpcParseError(f"no JSON: {error}"))


class BoundedInput:
    """A stream of messages, of which none may be longer than memory allows."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.readline = stream.readline

    def read(self, size: int) -> bytes:
        """Read the body of a message; one that is too long is left for the next header."""
        return self._stream.read(size) if size <= LONGEST else b"too long"


def _cause(error: BaseException) -> str:
    """Say in one line what was wrong: the innermost reason that has words."""
    while error.__cause__ is not None:
        error = error.__cause__
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    return " ".join(str(error).split())
