"""The MCP server: torchlint's commands as tools for agents.

Every tool is one run of the command line in a process of its own, so that its answer is the
documented JSON, and a cancelled call ends its process. Only `verify` and `tune` run a script.
An answer takes room in the agent's context, so it is short unless `whole` asks for all of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from torchlint import __version__

_FAILED: Final = 2
_GRACE: Final = 20.0
"""Seconds in which a cancelled command may end the processes that it started."""
_MOST_FINDINGS: Final = 15
_MOST_LETTERS: Final = 7_000
"""How much a short answer has of findings and of text."""
_PACE: Final = 5.0
"""Seconds from one sign of progress to the next."""
_OF_FINDING: Final = ("code", "message", "filename", "cell", "impact")
_OF_ROW: Final = ("technique", "state", "line", "why", "rules", "gain")
_OF_VARIANT: Final = (
    *("kind", "codes", "safety", "verdict", "decision", "speedup", "numbers"),
    *("syncs_per_step", "doubts"),
)
"""The fields that a short answer has of each entry."""
_INSTRUCTIONS: Final = (
    "torchlint finds what makes a PyTorch training script slow. Call `check`, read `explain` of a "
    "code that is new to you, show the diff of `fix`, and let `verify` prove it: it runs the "
    "original and the fixed script side by side. Keep only the codes with the decision `keep`. "
    "Answers are short; `whole` returns all of one."
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
    async def check(
        paths: list[str], select: str | list[str] = "", whole: bool = False
    ) -> dict[str, Any]:
        """Report what makes training slow in files and folders; runs no code of theirs.

        `select` has codes, names or groups, as a list or with commas between them. The findings
        that matter most come first; `whole` returns all of them, with edits and evidence.
        """
        words = ["check", "--output-format=json", "--sort=impact", *_selected(select)]
        findings = json.loads(await _run(root, [*words, "--", *_inside(root, paths)]))
        return {"findings": findings} if whole else _short_findings(findings)

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
        whole: bool = False,
    ) -> str:
        """Return the diff of the fixes; writes them only with `apply`. `whole` cuts nothing off."""
        unsafe = ["--unsafe-fixes"] if unsafe_fixes else []
        writes = ["--apply"] if apply else []
        words = ["fix", *_selected(select), *unsafe, *writes, "--", *_inside(root, paths)]
        text = await _run(root, words)
        return text if whole else _short_text(text)

    @server.tool(annotations=reads)
    async def audit(script: str, whole: bool = False) -> dict[str, Any]:
        """Return the known techniques that are missing from a script, and count the others.

        `whole` returns each as in use, missing, not applicable or cannot tell.
        """
        words = ["audit", "--output-format=json", "--", *_inside(root, [script])]
        found = json.loads(await _run(root, words))
        return {"audit": found} if whole else _short_audit(found)

    @server.tool(annotations=runs)
    async def verify(
        ctx: Context[Any],
        script: str,
        arguments: list[str] | None = None,
        quick: bool = False,
        whole: bool = False,
    ) -> dict[str, Any]:
        """Run the original and the fixed script side by side; may take minutes.

        Returns for each fix the speed-up with its confidence interval, whether losses and weights
        are equal, and the decision: keep or revert. `whole` returns the report of `verify --json`.
        """
        words = ["verify", "--json", *(["--quick"] if quick else []), *_inside(root, [script])]
        report = json.loads(await _run(root, [*words, "--", *(arguments or ())], ctx))
        if not whole:
            fields = ("script", "device", "torch", "steps", "noise")
            variants = [_only(_OF_VARIANT, each) for each in report["variants"]]
            report = {**_only(fields, report), "variants": variants}
        return {"report": report}

    @server.tool(annotations=runs)
    async def tune(ctx: Context[Any], script: str, arguments: list[str] | None = None) -> str:
        """Run the script with other loader settings, and say which is fastest; takes minutes."""
        words = ["tune", *_inside(root, [script]), "--", *(arguments or ())]
        return await _run(root, words, ctx)

    return server


def _only(fields: Sequence[str], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry that say something."""
    return {field: entry[field] for field in fields if entry.get(field) not in (None, [])}


def _short_findings(findings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first findings without edits and evidence, and count those left out by code."""
    short = []
    for finding in findings[:_MOST_FINDINGS]:
        fix = finding["fix"]
        safety = {} if fix is None else {"fix": _only(("safety", "message"), fix)}
        place = {"row": finding["location"]["row"]}
        short.append({**_only(_OF_FINDING, finding), **place, **safety})
    left = Counter(finding["code"] for finding in findings[_MOST_FINDINGS:])
    return {"findings": short, **({"left_out": dict(left)} if left else {})}


def _short_audit(found: dict[str, Any]) -> dict[str, Any]:
    """Return the techniques that are missing, and how many are in each state."""
    rows = [_only(_OF_ROW, row) for row in found["rows"] if row["state"] == "missing"]
    counts = dict(Counter(row["state"] for row in found["rows"]))
    return {"audit": {"script": found["script"], "counts": counts, "rows": rows}}


def _short_text(text: str) -> str:
    """Return a text up to the last whole line that is in the limit, and say what is left out."""
    if len(text) <= _MOST_LETTERS:
        return text
    kept = text[: text.rindex("\n", 0, _MOST_LETTERS) + 1]
    lines = text.count("\n") - kept.count("\n")
    return f"{kept}[{lines} more lines: name fewer paths or codes, or pass `whole`]\n"


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


async def _run(root: Path, words: Sequence[str], ctx: Context[Any] | None = None) -> str:
    """Run a command and return its output; raise its error message where it failed.

    The client of `ctx` is told every few seconds that the command still runs.
    """
    command = [sys.executable, "-m", "torchlint", *words]
    output, errors = bytearray(), bytearray()
    process = await anyio.open_process(command, cwd=root, stdin=subprocess.DEVNULL)
    async with process, anyio.create_task_group() as reading:
        reading.start_soon(_read, process.stdout, output)
        reading.start_soon(_read, process.stderr, errors)
        try:
            async with anyio.create_task_group() as telling:
                if ctx is not None:
                    telling.start_soon(_tell, ctx, words[0])
                code = await process.wait()
                telling.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_GRACE, shield=True):
                process.terminate()
                await process.wait()
            raise
    if code >= _FAILED or code < 0:
        raise ToolError(errors.decode(errors="replace").strip() or "torchlint failed")
    return output.decode(errors="replace")


async def _tell(ctx: Context[Any], command: str) -> None:
    """Tell the client for how long a command has been running, until cancelled."""
    for round_ in count(1):
        await anyio.sleep(_PACE)
        seconds = round_ * _PACE
        await ctx.report_progress(seconds, message=f"{command} runs for {seconds:.0f} s")


async def _read(stream: ByteReceiveStream | None, kept: bytearray) -> None:
    """Keep all that a process writes to a stream."""
    if stream is not None:
        async for part in stream:
            kept += part
