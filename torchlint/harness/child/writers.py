"""Loggers that write by themselves: TensorBoard is diverted, wandb is switched off."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final

from torchlint.harness.child.overlay import after_import
from torchlint.harness.child.shadow import Shadow

_TENSORBOARD: Final = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


def divert_loggers(shadow: Shadow) -> None:
    """Divert the files of loggers when these are imported, wherever the script puts them."""
    for name in _TENSORBOARD:
        after_import(name, partial(_divert_events, name, shadow))
    after_import("wandb", _switch_off_wandb)


def _divert_events(name: str, shadow: Shadow) -> None:
    module: Any = sys.modules[name]
    begin = module.FileWriter.__init__

    def __init__(writer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - takes its place
        if args:
            args = (shadow.writable(args[0], anywhere=True), *args[1:])
        else:
            for name in ("log_dir", "logdir"):
                if name in kwargs:
                    kwargs[name] = shadow.writable(kwargs[name], anywhere=True)
        begin(writer, *args, **kwargs)

    module.FileWriter.__init__ = __init__


def _switch_off_wandb() -> None:
    """Disable wandb, even for `wandb.init(mode="online")`."""
    module: Any = sys.modules["wandb"]
    begin = module.init

    def init(*args: Any, **kwargs: Any) -> Any:
        return begin(*args, **{**kwargs, "mode": "disabled"})

    module.init = init
