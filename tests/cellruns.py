"""Run the cells of notebooks from top to bottom, each notebook in a fork of this process.

Reads lines of JSON, each a folder of modules and a list of notebooks, which are lists of cells;
answers each line with one.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import importlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

SECONDS = 30
"""CPU seconds for one notebook."""
WAITING = 200
"""Seconds after which a notebook is killed, such as one that waits for a process."""


class TooLongError(BaseException):
    """Time is up; no `except Exception` may catch this."""


def _ring(*_: object) -> NoReturn:
    raise TooLongError


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _missing(cells: list[types.CodeType], names: dict[str, Any]) -> list[str]:
    """Return the global names that functions of the cells read and nothing has bound yet."""
    read = {
        str(step.argval)
        for cell in cells
        for code in _codes(cell)
        for step in dis.get_instructions(code)
        if step.opname == "LOAD_GLOBAL"
    }
    return sorted(read - set(names) - set(vars(builtins)))


def _run(cells: list[str]) -> dict[str, Any]:
    """Run the cells in one namespace; stop at the first error, as Jupyter does."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names, printed, codes = vars(module), io.StringIO(), list[types.CodeType]()
    error, missing = "", list[list[str]]()
    _seed()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            try:
                codes.append(compile(cell, "<cell>", "exec", dont_inherit=True))
                exec(codes[-1], names)
            except BaseException as raised:
                error = f"{type(raised).__name__}: {raised}"
                break
            missing.append(_missing(codes, names))
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {"error": error, "missing": missing, "printed": printed.getvalue()}


def _seed() -> None:
    random.seed(0)
    importlib.import_module("torch").manual_seed(0)
    importlib.import_module("numpy").random.seed(0)


def _in_fork(modules: str, cells: list[str]) -> dict[str, Any]:
    """Run a notebook in a process of its own, and end with it those that it has started."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        process = os.fork()
        if not process:
            _answer(modules, cells, answer)
        os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        if not answer.exists():
            raise SystemExit(f"a notebook took more than {WAITING} seconds: {cells}")
        return dict(json.loads(answer.read_text(encoding="utf-8")))


def _answer(modules: str, cells: list[str], answer: Path) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGPROF, _ring)
    signal.alarm(WAITING)
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    sys.path.insert(0, modules)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = json.dumps(_run(cells))
    answer.write_text(text, encoding="utf-8")
    os._exit(0)


def _warm_up() -> None:
    """Import what the first step of an optimizer imports."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters())
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def main() -> None:
    """Run every list of notebooks, each notebook with the same seeds."""
    _warm_up()
    for line in sys.stdin:
        modules, notebooks = json.loads(line)
        ended = [_in_fork(modules, cells) for cells in notebooks]
        sys.stdout.write(f"{json.dumps(ended)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
