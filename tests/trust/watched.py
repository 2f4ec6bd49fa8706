"""Run torchlint in a process of its own and write down all that it opens, imports and starts."""

from __future__ import annotations

import json
import os
import sys

EVENTS = (
    "open",
    "import",
    "exec",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "shutil.",
    "compile",
)
seen: list[list[str]] = []
watching = False


def note(event: str, arguments: tuple[object, ...]) -> None:
    """Keep an audit event that says something of files, code or processes."""
    if watching and event.startswith(EVENTS):
        if event == "exec":
            code = arguments[0]
            seen.append([event, getattr(code, "co_filename", repr(code))])
        else:
            seen.append([event, *(_text(each) for each in arguments[:2])])


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, (str, bytes, os.PathLike)) else repr(value)


def main() -> None:
    """Run the command line given after the name of the file to write."""
    global watching
    out, *arguments = sys.argv[1:]
    from torchlint.cli import main as torchlint

    sys.addaudithook(note)
    watching = True
    code = 0
    try:
        torchlint(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    watching = False
    with open(out, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"code": code, "seen": seen}, file)


if __name__ == "__main__":
    main()
