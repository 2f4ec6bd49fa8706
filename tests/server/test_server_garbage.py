"""What becomes of bytes that no editor should send: an error, and the server goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from processes import stopped
from server_documents import TRAIN

ALL = 500
"""Seconds for all tests that share a server: fewer than one test may take."""
INITIALIZE: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}


class Wire:
    """A server process and the bytes to and from it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torchlint", "server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say(self, body: Any) -> None:
        """Send JSON, framed."""
        self.send(framed(json.dumps(body).encode()))

    def ask(self, identity: int, method: str, params: Any) -> dict[str, Any]:
        """Send a request and give the answer."""
        self.say({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == identity:
                return message

    def read(self) -> dict[str, Any]:
        """Read the next message."""
        stream = self.process.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            name, _, value = line.partition(b": ")
            if name == b"Content-Length":
                length = int(value)
        assert length, "the server is gone"
        message: dict[str, Any] = json.loads(stream.read(length))
        return message

    def end(self) -> tuple[int, bytes]:
        """End the process; give its exit code and what it complained of."""
        _, complaints = self.process.communicate(timeout=60)
        return self.process.returncode, complaints


def framed(body: bytes) -> bytes:
    """Return a message with its header."""
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    """Return a server that is up; in the end it must take its leave without a traceback."""
    made = Wire()
    with stopped(made.process, ALL):
        assert "result" in made.ask(1, "initialize", INITIALIZE)
        made.say({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        yield made
        assert "result" in made.ask(2, "shutdown", None)
        made.say({"jsonrpc": "2.0", "method": "exit"})
        assert made.end() == (0, b"")


def _still_works(wire: Wire) -> bool:
    item = {"uri": "untitled:x", "languageId": "python", "version": 3, "text": TRAIN}
    wire.say({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": item}})
    while True:
        message = wire.read()
        if message.get("params", {}).get("uri") == "untitled:x":
            return bool(message["params"]["diagnostics"])


PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (framed(b"{"), PARSE_ERROR, "invalid JSON: "),
        (framed(b"\xff\xfe\x00"), PARSE_ERROR, "invalid JSON: "),
        (framed(b"[" * 100_000), PARSE_ERROR, "invalid JSON: "),
        (b"nonsense\r\n\r\n" + framed(b"nonsense"), PARSE_ERROR, "invalid JSON: "),
        (b"Content-Length: 999999999999\r\n\r\n", PARSE_ERROR, "invalid JSON: "),
        (framed(b"[1, 2]"), INVALID_REQUEST, "not a JSON-RPC 2.0 message"),
        (framed(b"{}"), INVALID_REQUEST, "not a JSON-RPC 2.0 message"),
        (
            framed(b'{"jsonrpc": "1.0", "method": "initialized", "params": {}}'),
            INVALID_REQUEST,
            "not a JSON-RPC 2.0 message",
        ),
        (framed(b'{"jsonrpc": "2.0"}'), INVALID_PARAMS, "wrong parameters: "),
    ],
)
def test_what_is_no_message_is_refused(wire: Wire, data: bytes, code: int, said: str) -> None:
    wire.send(data)
    answer = wire.read()
    while "error" not in answer:
        answer = wire.read()
    assert answer["id"] is None
    assert answer["error"]["code"] == code
    assert answer["error"]["message"].startswith(said)
    assert "\n" not in answer["error"]["message"]
    assert _still_works(wire)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("torchlint/noSuchThing", {}, NO_METHOD),
        ("textDocument/hover", None, INVALID_PARAMS),
        ("textDocument/hover", [1], INVALID_PARAMS),
        ("textDocument/hover", {"textDocument": {"uri": "file:///a.py"}}, INVALID_PARAMS),
        (
            "textDocument/codeAction",
            {"textDocument": {"uri": "x"}, "range": {"start": -1}},
            INVALID_PARAMS,
        ),
        ("workspace/executeCommand", {"command": "rm"}, None),
    ],
)
def test_a_wrong_request_is_answered(wire: Wire, method: str, params: Any, code: int) -> None:
    error = wire.ask(17, method, params)["error"]
    assert code in (None, error["code"])
    assert error["message"]
    assert _still_works(wire)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("torchlint/noSuchThing", {}),
        (
            "textDocument/didChange",
            {
                "textDocument": {"uri": "untitled:never", "version": 1},
                "contentChanges": [{"text": "x"}],
            },
        ),
        ("textDocument/didChange", {"textDocument": 3}),
        ("textDocument/didClose", {"textDocument": {"uri": "untitled:never"}}),
        ("textDocument/didSave", {"textDocument": {"uri": "%%%"}}),
        ("$/cancelRequest", {"id": 4711}),
        ("workspace/didChangeConfiguration", {"settings": 3}),
        ("workspace/didChangeConfiguration", {"settings": {"torchlint": 3}}),
        ("workspace/didChangeWatchedFiles", {"changes": []}),
    ],
)
def test_a_wrong_notification_changes_nothing(wire: Wire, method: str, params: Any) -> None:
    wire.say({"jsonrpc": "2.0", "method": method, "params": params})
    assert _still_works(wire)


def test_an_answer_that_nobody_asked_for(wire: Wire) -> None:
    wire.say({"jsonrpc": "2.0", "id": 4711, "result": None})
    wire.say({"jsonrpc": "2.0", "id": 4712, "error": {"code": 1, "message": "no"}})
    assert _still_works(wire)


def test_a_request_before_the_introduction() -> None:
    wire = Wire()
    params = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 0}}
    with stopped(wire.process):
        assert "error" in wire.ask(5, "textDocument/hover", params)
        assert "result" in wire.ask(6, "initialize", INITIALIZE)
        assert _still_works(wire)
        assert wire.end() == (1, b"")


@pytest.mark.parametrize("data", [b"", b"Content-Length: 12\r\n\r\n{", b"\0" * 4096])
def test_an_editor_that_is_gone_ends_the_server(data: bytes) -> None:
    wire = Wire()
    with stopped(wire.process):
        wire.send(data)
        assert wire.end() == (1, b"")
