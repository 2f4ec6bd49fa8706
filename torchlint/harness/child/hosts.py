"""The exchange of traces between the hosts of a launched run, when it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from torchlint.harness.trace import printed

ALL_TRACES: Final = "ranks.json"
"""The file, written by a host's first rank, with the traces of all ranks of all hosts."""

_PATIENCE: Final = timedelta(seconds=60)
"""How long a host waits for the traces of the others."""


def exchange_traces(file: Path, traces: Sequence[Path]) -> None:
    """Send the traces of this host's ranks to all hosts, and write the traces of all.

    The store is torchrun's, which exists until the last host is done. Raises `RuntimeError`
    where a host does not answer.
    """
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=_PATIENCE)
    own = [_seen(trace) for trace in traces]
    store.set(_key(int(os.environ["GROUP_RANK"])), json.dumps(own))
    hosts = range(int(os.environ["GROUP_WORLD_SIZE"]))
    everyone = [trace for host in hosts for trace in json.loads(store.get(_key(host)))]
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(everyone), encoding="utf-8")
    draft.rename(file)


def _key(host: int) -> str:
    return f"torchlint-host-{host}"


def _seen(trace: Path) -> dict[str, object]:
    """Return the trace of a rank, with a digest of its printed output."""
    seen = json.loads(trace.read_text(encoding="utf-8"))
    return {**seen, "output": printed(trace.with_name("stdout"))}
