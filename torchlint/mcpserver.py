"""The MCP server: torchlint's commands as tools for agents.

Every tool is one run of the command line in a process of its own, so that its answer is the
documented JSON, and a cancelled call ends its process. Only `verify` and `tune` run a script.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from torchlint import __version__

_FAILED: Final = 2
_GRACE: Final = 20.0
"""Seconds in which a cancelled command may end the processes that it started."""
_INSTRUCTIONS: Final = (
    "torchlint finds what makes a PyTorch training script slow. Call `check`, read `explain` of a "
    "code that is new to you, show the diff of `fix`, and let `verify` prove it: it runs the "
    "original and the fixed script side by side. Keep only the codes with the decision `keep`."
)


def serve(root: Path) -> None:
    """Serve a client over standard input and output until it leaves."""
    _server(root.resolve()).run("stdio")


def _server(root: Path) -> MCPServer:
    """Return the server whose tools see the files below `root` alone."""
    server = MCPServer("torchlint", version=__version__, instructions=_INSTRUCTIONS)
    reads = ToolAnnotations(read_only_hint=True)
    runs = ToolAnnotations(read_only_hint=False, destructive_hint=True)

    @server.tool(annotations=reads)
    async def check(paths: list[str], select: str | list[str] = "") -> dict[str, Any]:
        """Report what makes training slow in files and folders; runs no code of theirs.

        `select` has codes, names or groups, as a list or with commas between them.
        """
        words = ["check", "--output-format=json", *_selected(select), "--", *_inside(root, paths)]
        return {"findings": json.loads(await _run(root, words))}

    @server.tool(annotations=reads)
    async def explain(code: str, examples: bool = False) -> str:
        """Return the page of a rule: why it is slow, an example, its fix and when not to."""
        return await _run(root, ["explain", *(["--examples"] if examples else []), "--", code])

    @server.tool(annotations=runs)
    async def fix(
        paths: list[str],
        select: str | list[str] = "",
        unsafe_fixes: bool = False,
        apply: bool = False,
    ) -> str:
        """Return the diff of the fixes; writes them only with `apply`."""
        unsafe = ["--unsafe-fixes"] if unsafe_fixes else []
        writes = ["--apply"] if apply else []
        words = ["fix", *_selected(select), *unsafe, *writes, "--", *_inside(root, paths)]
        return await _run(root, words)

    @server.tool(annotations=reads)
    async def audit(script: str) -> dict[str, Any]:
        """Return every known technique as in use, missing, not applicable or cannot tell."""
        words = ["audit", "--output-format=json", "--", *_inside(root, [script])]
        return {"audit": json.loads(await _run(root, words))}

    @server.tool(annotations=runs)
    async def verify(
        script: str, arguments: list[str] | None = None, quick: bool = False
    ) -> dict[str, Any]:
        """Run the original and the fixed script side by side; may take minutes.

        Returns for each fix the speed-up with its confidence interval, whether losses and weights
        are equal, and the decision: keep or revert.
        """
        words = ["verify", "--json", *(["--quick"] if quick else []), *_inside(root, [script])]
        return {"report": json.loads(await _run(root, [*words, "--", *(arguments or ())]))}

    @server.tool(annotations=runs)
    async def tune(script: str, arguments: list[str] | None = None) -> str:
        """Run the script with other loader settings, and say which is fastest; takes minutes."""
        return await _run(root, ["tune", *_inside(root, [script]), "--", *(arguments or ())])

    return server


def _selected(words: str | list[str]) -> list[str]:
    """Return the option that selects rules; agents pass a list or a text."""
    text = words if isinstance(words, str) else ",".join(words)
    return [f"--select={text}"] if text else []


def _inside(root: Path, paths: Sequence[str]) -> list[str]:
    """Return the paths as absolute ones; raise an error for one outside of the root."""
    found = [(root / path).resolve() for path in paths]
    for path in found:
        if not path.is_relative_to(root):
            raise ToolError(f"{path} is not below {root}, the folder that this server serves")
    return [str(path) for path in found]


async def _run(root: Path, words: Sequence[str]) -> str:
    """Run a command and return its output; raise its error message where it failed."""
    command = [sys.executable, "-m", "torchlint", *words]
    output, errors = bytearray(), bytearray()
    process = await anyio.open_process(command, cwd=root, stdin=subprocess.DEVNULL)
    async with process, anyio.create_task_group() as reading:
        reading.start_soon(_read, process.stdout, output)
        reading.start_soon(_read, process.stderr, errors)
        try:
            code = await process.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_GRACE, shield=True):
                process.terminate()
                await process.wait()
            raise
    if code >= _FAILED or code < 0:
        raise ToolError(errors.decode(errors="replace").strip() or "torchlint failed")
    return output.decode(errors="replace")


async def _read(stream: ByteReceiveStream | None, kept: bytearray) -> None:
    """Keep all that a process writes to a stream."""
    if stream is not None:
        async for part in stream:
            kept += part
