"""The MCP server, talked to by the client of the package mcp."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
from checkouts import ROOT
from mcp.types import CallToolResult, TextContent
from mcpserver.session import session

SLOW = "import torch\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n"


def test_a_client_checks_explains_and_fixes_within_the_root_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{SLOW}open('ran', 'w')\n")
    anyio.run(_talk, tmp_path)
    assert "detect_anomaly" not in script.read_text()
    assert not (tmp_path / "ran").exists()


async def _talk(folder: Path) -> None:
    async with session(folder) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"check", "explain", "fix", "audit", "verify", "tune"}
        assert set(tools["fix"].input_schema["properties"]) == {
            *("paths", "select", "unsafe_fixes", "apply", "whole")
        }
        found = await client.call_tool("check", {"paths": ["train.py"]})
        assert found.structured_content is not None
        assert [each["code"] for each in found.structured_content["findings"]] == ["TL801"]
        given: tuple[str | list[str], ...] = (["perf", "TL2"], "perf,TL2")
        for select in given:
            again = await client.call_tool("check", {"paths": ["train.py"], "select": select})
            assert again.structured_content == found.structured_content
        page = await client.call_tool("explain", {"code": "TL801"})
        assert "detect_anomaly" in str(page.content)
        diff = await client.call_tool("fix", {"paths": ["train.py"]})
        assert "-torch.autograd.set_detect_anomaly(True)" in str(diff.content)
        assert (folder / "train.py").read_text().startswith(SLOW)
        outside = await client.call_tool("check", {"paths": ["../other.py"]})
        assert outside.is_error
        assert "is not below" in str(outside.content)
        unknown = await client.call_tool("explain", {"code": "TL999"})
        assert unknown.is_error
        assert not (await client.call_tool("fix", {"paths": ["train.py"], "apply": True})).is_error


SHORT = 8_000
"""How many letters an answer may have that an agent did not ask for in whole."""


def test_answers_are_short_unless_the_agent_asks_for_the_whole(tmp_path: Path) -> None:
    for name in ("train", "second", "third", "fourth", "fifth", "sixth"):
        shutil.copy(ROOT / "fixtures" / "readme" / "train.py", tmp_path / f"{name}.py")
    anyio.run(_ask_for_both, tmp_path)


def _letters(result: CallToolResult) -> int:
    return sum(len(part.text) for part in result.content if isinstance(part, TextContent))


async def _ask_for_both(folder: Path) -> None:
    async with session(folder) as client:
        for tool, arguments in (
            ("check", {"paths": ["."]}),
            ("fix", {"paths": ["."]}),
            ("audit", {"script": "train.py"}),
        ):
            short = await client.call_tool(tool, arguments)
            whole = await client.call_tool(tool, {**arguments, "whole": True})
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
