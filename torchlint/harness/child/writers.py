"""Libraries that write by themselves: files are diverted, wandb is switched off."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torchlint.harness.child.overlay import after_import
from torchlint.harness.child.shadow import Shadow

_TENSORBOARD: Final = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


def divert_writers(shadow: Shadow) -> None:
    """Divert the files of libraries when these are imported, wherever the script puts them.

    Their compiled code opens a file by its path, and would miss the folders that are diverted.
    """
    for name in _TENSORBOARD:
        after_import(name, partial(_divert_events, name, shadow))
    after_import("safetensors", partial(_divert_tensors, shadow))
    after_import("tokenizers", partial(_divert_tokenizers, shadow))
    after_import("wandb", _switch_off_wandb)


def _divert_tensors(shadow: Shadow) -> None:
    module: Any = sys.modules["safetensors"]
    write, read = module.serialize_file, module.safe_open

    def serialize_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        return write(tensors, shadow.writable(filename, anywhere=True), *args, **kwargs)

    module.serialize_file = serialize_file
    module.safe_open = _reading(read, shadow)


def _divert_tokenizers(shadow: Shadow) -> None:
    tokenizer: Any = sys.modules["tokenizers"].Tokenizer
    write = tokenizer.save

    def save(itself: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        return write(itself, shadow.writable(path, anywhere=True), *args, **kwargs)

    tokenizer.save = save
    tokenizer.from_file = staticmethod(_reading(tokenizer.from_file, shadow))


def _reading(read: Callable[..., Any], shadow: Shadow) -> Callable[..., Any]:
    """Return a function that reads the diverted file where there is one."""

    def reading(path: Any, *args: Any, **kwargs: Any) -> Any:
        return read(shadow.readable(path, anywhere=True), *args, **kwargs)

    return reading


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
