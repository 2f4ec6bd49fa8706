"""A session of the client of the package mcp with a server of ours."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

__all__ = ["session"]

SECONDS = 300


@asynccontextmanager
async def session(folder: Path) -> AsyncIterator[ClientSession]:
    """Yield a session about a folder, and end it with its server after a time at the latest."""
    words = ["-m", "torchlint", "mcp", "--root", str(folder)]
    started = StdioServerParameters(command=sys.executable, args=words, cwd=folder)
    with anyio.fail_after(SECONDS):
        async with stdio_client(started) as streams, ClientSession(*streams) as made:
            await made.initialize()
            yield made
