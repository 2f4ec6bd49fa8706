"""The callbacks, with stand-ins for the frameworks, which are not installed for the tests."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import torchlint.callbacks

SLOW = "import torch\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n"


class Base:
    """A base class of a framework."""


@pytest.mark.parametrize(
    ("framework", "base", "name"),
    [
        ("transformers", "TrainerCallback", "TransformersCallback"),
        ("pytorch_lightning", "Callback", "LightningCallback"),
    ],
)
def test_findings_are_printed_once_in_the_first_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    framework: str,
    base: str,
    name: str,
) -> None:
    module = ModuleType(framework)
    setattr(module, base, Base)
    monkeypatch.setattr(torchlint.callbacks, "find_spec", lambda name: sys.modules.get(name))
    monkeypatch.setitem(sys.modules, framework, module)
    script = tmp_path / "train.py"
    script.write_text(SLOW)
    made = getattr(torchlint.callbacks, name)
    monkeypatch.delitem(vars(torchlint.callbacks), name)
    assert issubclass(made, Base)
    callback = made(script)
    told = []
    for is_first in (False, True, True):
        process = SimpleNamespace(is_global_zero=is_first, is_world_process_zero=is_first)
        if name == "LightningCallback":
            callback.on_fit_start(process, None)
        else:
            callback.on_train_begin(None, process, None, model=None)
        told.append("TL801" in capsys.readouterr().err)
    assert told == [False, True, False]
