"""Measure the time from a change of a document to its findings, with a warm server.

    python benchmarks/server.py [SCRIPT] [--lines 1000] [--changes 20]

Without a script the text is made of the shipped training scripts, which have more findings than
most files. Every change appends a line and waits for the findings of exactly that version. The
delay with which the server waits for more typing is part of the time.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source

FIXTURES = Path(__file__).parents[1] / "fixtures" / "scripts"
GOAL = 0.3


class Server:
    """A server process, with a minimal client."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torchlint", "server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self._tell("initialized", {})

    def open(self, uri: str, text: str) -> int:
        """Open a document, wait for its findings, and return their number."""
        item = {"uri": uri, "languageId": "python", "version": 0, "text": text}
        self._tell("textDocument/didOpen", {"textDocument": item})
        return self._findings(0)

    def change(self, uri: str, text: str, version: int) -> float:
        """Change a document and return the seconds until its findings arrive."""
        began = time.perf_counter()
        document = {"uri": uri, "version": version}
        self._tell(
            "textDocument/didChange",
            {"textDocument": document, "contentChanges": [{"text": text}]},
        )
        self._findings(version)
        return time.perf_counter() - began

    def end(self) -> None:
        """Shut the server down."""
        self._ask("shutdown", None)
        self._tell("exit", None)
        self._process.wait()

    def _findings(self, version: int) -> int:
        while True:
            message = self._read()
            if message.get("method") == "textDocument/publishDiagnostics":
                if message["params"].get("version") == version:
                    return len(message["params"]["diagnostics"])

    def _ask(self, method: str, params: Any) -> None:
        self._write({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
        while self._read().get("id") != method:
            pass

    def _tell(self, method: str, params: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps(message).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            name, _, value = line.partition(b":")
            if name == b"Content-Length":
                length = int(value)
        message: dict[str, Any] = json.loads(stream.read(length))
        return message


def script(lines: int) -> str:
    """Return a script of about this many lines, cut where it still parses."""
    parts = [path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("*/before.py"))]
    kept = "\n".join(parts).splitlines()[:lines]
    while True:
        text = "\n".join(kept) + "\n"
        try:
            ast.parse(text)
        except SyntaxError:
            kept.pop()
        else:
            return text


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", nargs="?", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.script is None:
        text = script(arguments.lines)
    else:
        text = arguments.script.read_text(encoding="utf-8")
    server = Server()
    uri = "untitled:benchmark.py"
    found = server.open(uri, text)
    times = [
        server.change(uri, f"{text}\nchange = {version}\n", version)
        for version in range(1, arguments.changes + 3)
    ][2:]
    server.end()
    rows = text.count("\n")
    print(f"{rows} lines, {found} findings, {len(times)} changes after two to warm up")
    print(f"from change to findings: {words(times)} (goal {GOAL * 1000:.0f} ms)")
    print(f"processor time of the engine alone: {words(engine(text, arguments.changes))}")


def words(times: list[float]) -> str:
    """Return times in milliseconds."""
    median, low, high = statistics.median(times), min(times), max(times)
    return f"median {median * 1000:.0f} ms, {low * 1000:.0f} to {high * 1000:.0f}"


def engine(text: str, changes: int) -> list[float]:
    """Return the CPU seconds that checks of the text take in this process."""
    settings = Settings()
    rules = load_registry().select(settings)
    times: list[float] = []
    for version in range(changes + 2):
        source = Source("benchmark.py", f"{text}\nchange = {version}\n")
        began = time.process_time()
        check_source(source, rules, settings)
        times.append(time.process_time() - began)
    return times[2:]


if __name__ == "__main__":
    main()
