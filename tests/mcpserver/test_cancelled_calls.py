"""A call of `verify` that the client cancels: every process of the run ends."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcpserver.session import session
from processes import PATIENCE

pytest.importorskip("torch")

SLOW = """\
import socket, subprocess, sys
import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
waits = "import signal; signal.pause()"
helper = subprocess.Popen([sys.executable, "-c", waits], pass_fds=[line.fileno()])
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
while True:
    loss = net(torch.ones(2, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    line.send(b".")
"""
"""Holds a line to the test, as does the process that it starts: it ends when both have ended."""


@pytest.mark.parametrize("stays", [True, False], ids=["cancels", "leaves"])
def test_no_process_of_a_run_is_left_after_the_client(tmp_path: Path, stays: bool) -> None:
    (tmp_path / "train.py").write_text(SLOW)
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(PATIENCE)
        anyio.run(_start_and_end_a_run, tmp_path, door, stays)


async def _start_and_end_a_run(folder: Path, door: socket.socket, stays: bool) -> None:
    call = {"script": "train.py", "arguments": [str(door.getsockname()[1])], "quick": True}
    async with session(folder) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "verify", call)
            line, _ = await anyio.to_thread.run_sync(door.accept)
            line.settimeout(PATIENCE)
            assert await anyio.to_thread.run_sync(line.recv, 1) == b"."
            calls.cancel_scope.cancel()
        if stays:
            await anyio.to_thread.run_sync(_read_to_its_end, line)
            assert (await client.list_tools()).tools
    await anyio.to_thread.run_sync(_read_to_its_end, line)
    line.close()


def _read_to_its_end(line: socket.socket) -> None:
    while line.recv(1 << 16):
        pass
