"""TL803: environment variables for debugging that the script sets for every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Record, Rule, Safety, Script, Value
from torchlint_rules._leftover import Leftover, taken_out

_COSTS: Final = {
    "CUDA_LAUNCH_BLOCKING": "makes the host wait for every kernel",
    "TORCH_SHOW_CPP_STACKTRACES": "adds C++ stacks to every error",
    "TORCH_DISTRIBUTED_DEBUG": "checks and logs every collective",
    "NCCL_DEBUG": "logs what NCCL does",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "allocates GPU memory anew for every tensor",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "allocates GPU memory anew for every tensor",
    "TORCH_LOGS": "logs what the compiler does",
    "TORCHDYNAMO_DISABLE": "switches `torch.compile` off",
    "TORCH_COMPILE_DISABLE": "switches `torch.compile` off",
    "OMP_NUM_THREADS": "leaves all but one of the processor's cores idle",
}
_DEAR: Final = {
    "TORCH_DISTRIBUTED_DEBUG": frozenset({"detail"}),
    "NCCL_DEBUG": frozenset({"info", "trace"}),
    "OMP_NUM_THREADS": frozenset({"1"}),
}
"""The values that cost something, where others do not."""
_OFF: Final = frozenset({"", "0", "off", "false", "no", "n"})
_DEBUGGING: Final = ("CUDA_LAUNCH_BLOCKING", "TORCH_SHOW_CPP_STACKTRACES")
"""The variables of which the numbers do not depend."""


class DebugEnvironment(Rule):
    """
    ## What it does
    Flags environment variables for debugging that a script sets for itself in every run:
    CUDA_LAUNCH_BLOCKING, TORCH_SHOW_CPP_STACKTRACES, TORCH_DISTRIBUTED_DEBUG=DETAIL,
    NCCL_DEBUG=INFO, PYTORCH_NO_CUDA_MEMORY_CACHING, TORCH_LOGS, TORCHDYNAMO_DISABLE, and a single
    thread (OMP_NUM_THREADS=1) in a script for the CPU.

    ## Why it is slow
    With CUDA_LAUNCH_BLOCKING the host waits for every kernel, so nothing runs ahead of the GPU.
    Without caching each tensor asks the driver for memory. The rest log, check or switch off.

    ## When not to
    Set them in the shell while you look for an error: `CUDA_LAUNCH_BLOCKING=1 python train.py`.
    What stands behind a condition, in an error handler or in a test is left alone.

    ## Fix safety
    Exact: CUDA_LAUNCH_BLOCKING and TORCH_SHOW_CPP_STACKTRACES change no number. A script that is
    wrong about streams may have been right by chance while every launch waited. The others are
    reported only.
    """

    code = "TL803"
    name = "debug-environment"
    summary = "a variable for debugging is set in every run"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S3.13",)
    needs = (
        "CUDA_LAUNCH_BLOCKING",
        "TORCH_SHOW_CPP_STACKTRACES",
        "TORCH_DISTRIBUTED_DEBUG",
        "NCCL_DEBUG",
        "MEMORY_CACHING",
        "TORCH_LOGS",
        "TORCHDYNAMO_DISABLE",
        "TORCH_COMPILE_DISABLE",
        "OMP_NUM_THREADS",
    )

    invalid = {
        "the usual line": """
            - import os
              import torch
            - os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
              model = torch.nn.Linear(4, 4).cuda()
            """,
        "several, a comment, something else that needs the import": """
              import os
              import torch
            - os.environ['CUDA_LAUNCH_BLOCKING'] = '1'  # where does it fail?
            - os.environ.setdefault("TORCH_SHOW_CPP_STACKTRACES", "1")
            + # where does it fail?
              os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            """,
        "the import goes with the last of them": """
            - import os
              import torch
            - os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            - os.putenv("TORCH_SHOW_CPP_STACKTRACES", "1")
              model = torch.nn.Linear(4, 4).cuda()
            """,
        "in the entry function, by a name of its own": """
            - from os import environ
              import torch
              def main():
            -     environ["CUDA_LAUNCH_BLOCKING"] = "1"
                  torch.nn.Linear(4, 4).cuda()
              if __name__ == "__main__":
                  main()
            """,
        "several at once: reported, left alone": """
              import os
              import torch
            ! os.environ.update({"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1"})
            ! os.environ.update(TORCH_DISTRIBUTED_DEBUG="DETAIL")
            """,
        "those that may matter: reported, left alone": """
              import os
              import torch
            ! os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
            ! os.environ["NCCL_DEBUG"] = "INFO"
            ! os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
            ! os.environ["TORCH_LOGS"] = "+dynamo"
            ! os.environ["TORCHDYNAMO_DISABLE"] = "1"
            """,
        "two statements on a line: reported, left alone": """
              import os
              import torch
            ! x = torch.ones(1); os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            """,
        "one thread for the CPU: reported, left alone": """
              import os
            ! os.environ["OMP_NUM_THREADS"] = "1"
              import torch
              model = torch.nn.Linear(4, 4)
            """,
    }
    valid = {
        "switched off, or with a value that costs nothing": """
            import os
            import torch
            os.environ["CUDA_LAUNCH_BLOCKING"] = "0"
            os.environ["NCCL_DEBUG"] = "WARN"
            os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
            os.environ["TORCH_LOGS"] = "-dynamo"
            os.environ["TORCHDYNAMO_DISABLE"] = ""
            os.environ["OMP_NUM_THREADS"] = "8"
            """,
        "an argument decides": """
            import os
            import torch
            def main(args):
                os.environ["CUDA_LAUNCH_BLOCKING"] = args.blocking
                os.environ["NCCL_DEBUG"] = "INFO" if args.verbose else "WARN"
                if args.debug:
                    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            def enable_debugging():
                os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            """,
        "the step is repeated because it failed": """
            import os
            import torch
            try:
                train()
            except RuntimeError:
                os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
                train()
            """,
        "a test": """
            import os
            import torch
            def test_that_it_fails_where_it_should():
                os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            """,
        "for another process": """
            import os
            import subprocess
            import torch
            env = dict(os.environ)
            env["CUDA_LAUNCH_BLOCKING"] = "1"
            subprocess.run(["python", "train.py"], env=env)
            """,
        "asked for, not set": """
            import os
            import torch
            if os.environ["CUDA_LAUNCH_BLOCKING"] == "1":
                print(os.environ.get("NCCL_DEBUG", "INFO"))
            """,
        "one thread beside a GPU, and for many processes": """
            import os
            os.environ["OMP_NUM_THREADS"] = "1"
            import torch
            model = torch.nn.Linear(4, 4).cuda()
            """,
        "code for the CPU, where no kernel is launched": """
            # target-device: cpu
            import os
            import torch
            os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every line that sets a variable for debugging in each run."""
        found = [
            each
            for each in (*_assigned(script), *_called(script))
            if _costs(script, each) and not script.switched(each.node, "debug", "trace")
        ]
        lines = [_leftover(script, each) for each in found]
        together = [line for line in lines if line is not None]
        for each, line in zip(found, lines, strict=True):
            edits = taken_out(script, line, together) if line is not None else None
            fix = Fix.exact(f"Leave {each.name} alone", edits) if edits is not None else None
            yield Finding(self.code, script.span(each.node), _message(each), fix)


class _Setting(Record):
    """One variable that a statement or a part of it sets."""

    node: cst.CSTNode
    name: str
    value: str
    whole: bool
    """Whether the statement does nothing else."""


def _assigned(script: Script) -> Iterator[_Setting]:
    """Yield what `os.environ["X"] = "1"` sets."""
    for line in script.all(cst.Assign):
        target = line.targets[0].target
        if not isinstance(target, cst.Subscript) or len(target.slice) != 1:
            continue
        index = target.slice[0].slice
        if isinstance(index, cst.Index) and script.name(target.value) == "os.environ":
            name, value = script.value_of(index.value), script.value_of(line.value)
            yield from _setting(line, name, value, whole=len(line.targets) == 1)


def _called(script: Script) -> Iterator[_Setting]:
    """Yield what `setdefault`, `putenv` and `update` set."""
    for site in script.calls("os.environ.setdefault", "os.putenv"):
        name, value = site.argument("key", 0), site.argument("value", 1)
        whole = isinstance(script.parent(site.node), cst.Expr)
        yield from _setting(site.node, name, value, whole=whole)
    for site in script.calls("os.environ.update"):
        for arg in site.node.args:
            if arg.keyword is not None:
                value = script.value_of(arg.value)
                if arg.keyword.value in _COSTS and type(value.literal) is str:
                    yield _Setting(arg, arg.keyword.value, value.literal, whole=False)
            elif isinstance(arg.value, cst.Dict):
                for entry in arg.value.elements:
                    if isinstance(entry, cst.DictElement):
                        name = script.value_of(entry.key)
                        yield from _setting(entry, name, script.value_of(entry.value), whole=False)


def _setting(node: cst.CSTNode, name: Value, value: Value, *, whole: bool) -> Iterator[_Setting]:
    if type(name.literal) is str and name.literal in _COSTS and type(value.literal) is str:
        yield _Setting(node, name.literal, value.literal, whole)


def _costs(script: Script, setting: _Setting) -> bool:
    """Whether a value slows the script down on the devices that it can use."""
    value = setting.value.strip().lower()
    if setting.name == "OMP_NUM_THREADS":
        return value in _DEAR[setting.name] and not script.can_use_accelerator
    if setting.name not in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCH_LOGS"):
        if script.target.device == "cpu":
            return False
    if setting.name in _DEAR:
        return value in _DEAR[setting.name]
    if setting.name == "TORCH_LOGS":
        return any(part.strip()[:1] not in ("", "-") for part in value.split(","))
    return value not in _OFF


def _leftover(script: Script, setting: _Setting) -> Leftover | None:
    """Give the line that goes where a setting changes no number."""
    if setting.name not in _DEBUGGING or not setting.whole:
        return None
    line = script.statement(setting.node)
    return Leftover.of(script, line) if isinstance(line, cst.SimpleStatementLine) else None


def _message(setting: _Setting) -> str:
    where = "" if setting.name == "OMP_NUM_THREADS" else ", or set it in the shell to debug"
    return (
        f"`{setting.name}={setting.value}` {_COSTS[setting.name]} in every run: take it out{where}"
    )
