"""Writes traces with a known idle time, as torch.profiler and Nsight Systems write theirs."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAIN, BACKWARD = 4711, 4790
"""Threads of the host."""

_TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    text TEXT, globalTid INTEGER, textId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER, module INTEGER,
    unresolved INTEGER, originalIP INTEGER, stackDepth INTEGER NOT NULL);
"""


@dataclass
class Written:
    """The events of a trace; times are microseconds."""

    events: list[dict[str, Any]] = field(default_factory=list)
    chains: list[tuple[str, ...]] = field(default_factory=list)

    def frame(self, name: str, start: float, end: float, thread: int = MAIN) -> None:
        """Add a Python function, a builtin one as torch.profiler names it."""
        shown = name if "(" in name else f"<built-in method {name} of Tensor object at 0x7f01>"
        self._add("python_function", shown, start, end, tid=thread)

    def operator(self, name: str, start: float, end: float, thread: int = MAIN) -> None:
        """Add an operator."""
        self._add("cpu_op", name, start, end, tid=thread)

    def named(self, name: str, start: float, end: float, thread: int = MAIN) -> None:
        """Add a range that a script or torch itself names."""
        self._add("user_annotation", name, start, end, tid=thread)

    def call(
        self,
        name: str,
        start: float,
        end: float,
        correlation: int = 0,
        thread: int = MAIN,
        chain: tuple[str, ...] = (),
    ) -> None:
        """Add a call of the runtime, with a chain of Python frames for Nsight Systems."""
        self.chains.append(chain)
        args = {"correlation": correlation, "chain": len(self.chains) if chain else 0}
        self._add("cuda_runtime", name, start, end, tid=thread, args=args)

    def kernel(
        self, start: float, end: float, correlation: int = 0, device: int = 0, stream: int = 7
    ) -> None:
        """Add a kernel."""
        args = {"device": device, "stream": stream, "correlation": correlation}
        self._add("kernel", "void at::native::kernel", start, end, pid=device, args=args)

    def copy(self, start: float, end: float, correlation: int = 0) -> None:
        """Add a copy from the device."""
        args = {"device": 0, "stream": 7, "correlation": correlation, "bytes": 4}
        self._add("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", start, end, pid=0, args=args)

    def save(self, file: Path) -> Path:
        """Write the trace in the format of the file's name."""
        if file.suffix == ".sqlite":
            self._export(file)
            return file
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "with_stack": 1,
            "traceEvents": [
                {
                    "ph": "M",
                    "name": "process_name",
                    "ts": 0.0,
                    "pid": 1,
                    "args": {"name": "python"},
                },
                *self.events,
                {
                    "ph": "s",
                    "id": 4,
                    "pid": 1,
                    "tid": MAIN,
                    "ts": 1.0,
                    "cat": "ac2g",
                    "name": "ac2g",
                },
            ],
            "traceName": file.name,
        }
        data = json.dumps(document, indent=2).encode()
        file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
        return file

    def _add(self, kind: str, name: str, start: float, end: float, **more: Any) -> None:
        event = {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 7, "args": {}}
        self.events.append({**event, "ts": start, "dur": end - start, **more})

    def _export(self, file: Path) -> None:
        texts: dict[str, int] = {}

        def number(text: str) -> int:
            return texts.setdefault(text, len(texts) + 1)

        with closing(sqlite3.connect(file)) as base:
            base.executescript(_TABLES)
            for event in self.events:
                self._insert(base, event, number)
            for at, chain in enumerate(self.chains, 1):
                for depth, frame in enumerate(chain):
                    row = (at, number(frame), number("[Python]"), None, 0, depth)
                    base.execute("INSERT INTO CUDA_CALLCHAINS VALUES (?, ?, ?, ?, ?, ?)", row)
            base.executemany(
                "INSERT INTO StringIds VALUES (?, ?)", [(at, text) for text, at in texts.items()]
            )
            base.commit()

    def _insert(self, base: sqlite3.Connection, event: dict[str, Any], number: Any) -> None:
        process = 9 << 24
        times = round(1e3 * event["ts"]), round(1e3 * (event["ts"] + event["dur"]))
        args, kind, name = event["args"], event["cat"], event["name"]
        thread, correlation = process | event["tid"], args.get("correlation")
        rows: dict[str, tuple[str, tuple[Any, ...]]] = {
            "kernel": (
                "CUPTI_ACTIVITY_KIND_KERNEL",
                (args.get("device"), 1, args.get("stream"), correlation, process, 0, 0),
            ),
            "gpu_memcpy": ("CUPTI_ACTIVITY_KIND_MEMCPY", (0, 7, correlation, process, 4, 2)),
            "cuda_runtime": (
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                (0, thread, correlation, number(f"{name}_v3020"), 0, args.get("chain") or None),
            ),
            "cpu_op": ("NVTX_EVENTS", (59, name, thread, None)),
            "user_annotation": ("NVTX_EVENTS", (59, name, thread, None)),
        }
        if kind in rows:
            table, values = rows[kind]
            places = ", ".join("?" * (2 + len(values)))
            base.execute(f"INSERT INTO {table} VALUES ({places})", (*times, *values))


LOOP = """\
import torch


def main(net, loader, optimizer):
    for x, y in loader:
        loss = net(x, y)
        loss.backward()
        optimizer.step()
        print(loss.item())
        if loss > 9:
            break
"""
IDLE, LOADING, WAITING, WINDOW = 3 * 510.0, 3 * 200.0, 3 * 310.0, 3490.0
"""Microseconds of the trace below: idle, of these in the loader, after a wait; and in all."""


def loop(file: str = "train.py", first: int = 4, *, stacks: bool = True) -> Written:
    """Return a trace of four steps of the script above, each of which lasts a millisecond.

    The device works from 215 to 705 µs of each step, on two streams that overlap; the last is
    the copy for which `item()` waits. The loader takes the first 200 µs of a step.
    """
    trace = Written()
    if stacks:
        trace.frame(f"{file}({first}): main", 0, 4000)
    for number in range(4):
        at, of = 1000.0 * number, 10 * number
        trace.named(f"ProfilerStep#{number}", at, at + 1000)
        trace.named("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 200)
        if stacks:
            trace.frame("torch/utils/data/dataloader.py(720): __next__", at, at + 200)
            trace.frame("item", at + 300, at + 710)
        trace.call("cudaLaunchKernel", at + 205, at + 210, of + 1)
        trace.kernel(at + 215, at + 615, of + 1)
        trace.call("cudaLaunchKernel", at + 220, at + 225, of + 2, BACKWARD)
        trace.kernel(at + 500, at + 700, of + 2, stream=20)
        trace.operator("aten::item", at + 301, at + 709)
        trace.operator("aten::_local_scalar_dense", at + 302, at + 708)
        chain = ("item", f"{file}:9", "lib/other.py:3") if stacks else ()
        trace.call("cudaMemcpyAsync", at + 310, at + 706, of + 3, chain=chain)
        trace.copy(at + 700, at + 705, of + 3)
        trace.call("cudaStreamSynchronize", at + 707, at + 708, of + 4, chain=chain)
    return trace
