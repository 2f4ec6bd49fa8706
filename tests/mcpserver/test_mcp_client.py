"""The MCP server, talked to by the client of the package mcp."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import anyio
from checkouts import ROOT
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent

SLOW = "import torch\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n"


def test_a_client_checks_explains_and_fixes_within_the_root_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{SLOW}open('ran', 'w')\n")
    anyio.run(_talk, tmp_path)
    assert "detect_anomaly" not in script.read_text()
    assert not (tmp_path / "ran").exists()


async def _talk(folder: Path) -> None:
    words = ["-m", "torchlint", "mcp", "--root", str(folder)]
    started = StdioServerParameters(command=sys.executable, args=words, cwd=folder)
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) == {"check", "explain", "fix", "audit", "verify", "tune"}
        assert set(tools["fix"].input_schema["properties"]) == {
            *("paths", "select", "unsafe_fixes", "apply", "whole")
        }
        found = await session.call_tool("check", {"paths": ["train.py"]})
        assert found.structured_content is not None
        assert [each["code"] for each in found.structured_content["findings"]] == ["TL801"]
        given: tuple[str | list[str], ...] = (["perf", "TL2"], "perf,TL2")
        for select in given:
            again = await session.call_tool("check", {"paths": ["train.py"], "select": select})
            assert again.structured_content == found.structured_content
        page = await session.call_tool("explain", {"code": "TL801"})
        assert "detect_anomaly" in str(page.content)
        diff = await session.call_tool("fix", {"paths": ["train.py"]})
        assert "-torch.autograd.set_detect_anomaly(True)" in str(diff.content)
        assert (folder / "train.py").read_text().startswith(SLOW)
        outside = await session.call_tool("check", {"paths": ["../other.py"]})
        assert outside.is_error
        assert "is not below" in str(outside.content)
        unknown = await session.call_tool("explain", {"code": "TL999"})
        assert unknown.is_error
        assert not (await session.call_tool("fix", {"paths": ["train.py"], "apply": True})).is_error


SHORT = 8_000
"""How many letters an answer may have that an agent did not ask for in whole."""


def test_answers_are_short_unless_the_agent_asks_for_the_whole(tmp_path: Path) -> None:
    for name in ("train", "second", "third", "fourth", "fifth", "sixth"):
        shutil.copy(ROOT / "fixtures" / "readme" / "train.py", tmp_path / f"{name}.py")
    anyio.run(_ask_for_both, tmp_path)


def _letters(result: CallToolResult) -> int:
    return sum(len(part.text) for part in result.content if isinstance(part, TextContent))


async def _ask_for_both(folder: Path) -> None:
    words = ["-m", "torchlint", "mcp", "--root", str(folder)]
    started = StdioServerParameters(command=sys.executable, args=words, cwd=folder)
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        await session.initialize()
        for tool, arguments in (
            ("check", {"paths": ["."]}),
            ("fix", {"paths": ["."]}),
            ("audit", {"script": "train.py"}),
        ):
            short = await session.call_tool(tool, arguments)
            whole = await session.call_tool(tool, {**arguments, "whole": True})
            assert _letters(short) < SHORT < _letters(whole), tool
            if short.structured_content is None or whole.structured_content is None:
                assert tool == "fix"
            elif tool == "check":
                left = sum(short.structured_content["left_out"].values())
                shown = len(short.structured_content["findings"])
                assert shown + left == len(whole.structured_content["findings"])
            elif tool == "audit":
                found = short.structured_content["audit"]
                assert found["counts"]["missing"] == len(found["rows"])
