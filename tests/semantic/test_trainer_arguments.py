"""Arguments of trainers: what an option is, and when something out of sight may decide it."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.script import Script
from torchlint.semantic.training.arguments import Setting, TrainerArguments
from torchlint.source import Source

HEAD = """\
import os
from dataclasses import dataclass, field
from transformers import HfArgumentParser, Seq2SeqTrainingArguments, Trainer, TrainingArguments
from trl import SFTConfig
import lightning as L
"""
UNKNOWN = "unknown"
DEFAULT = "default"


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", HEAD + textwrap.dedent(text)))


def _only(script: Script) -> TrainerArguments:
    (found,) = script.program.trainings.arguments("transformers", "trl", "lightning")
    return found


@pytest.mark.parametrize(
    ("text", "option", "expected"),
    [
        ("TrainingArguments('o', save_steps=5)", "save_steps", 5),
        ("TrainingArguments('o', save_steps=0.5)", "save_steps", 0.5),
        ("N = 5\nTrainingArguments('o', save_steps=N)", "save_steps", 5),
        ("TrainingArguments('o', **{'save_steps': 5})", "save_steps", 5),
        ("c = dict(save_steps=5)\nTrainingArguments('o', **c)", "save_steps", 5),
        ("c = {'bf16': True}\nTrainingArguments('o', **c)", "save_steps", (DEFAULT, 500)),
        ("def f(**c):\n    TrainingArguments('o', **c)", "save_steps", UNKNOWN),
        ("TrainingArguments('o', save_steps=cfg.steps)", "save_steps", UNKNOWN),
        ("TrainingArguments('o', save_steps=int(os.environ['N']))", "save_steps", UNKNOWN),
        ("TrainingArguments('o')", "dataloader_num_workers", (DEFAULT, 0)),
        ("TrainingArguments('o')", "bf16", UNKNOWN),
        ("TrainingArguments('o', bf16=False)", "bf16", False),
        ("SFTConfig('o')", "logging_steps", (DEFAULT, 10)),
        ("Seq2SeqTrainingArguments('o')", "logging_steps", (DEFAULT, 500)),
        ("TrainingArguments('o', evaluation_strategy='steps')", "eval_strategy", "steps"),
        ("L.Trainer()", "val_check_interval", UNKNOWN),
        ("L.Trainer(val_check_interval=1)", "val_check_interval", 1),
        ("a = TrainingArguments('o')\na.save_steps = 7", "save_steps", 7),
        ("a = TrainingArguments('o')\nif x:\n    a.save_steps = 7", "save_steps", UNKNOWN),
        ("a = TrainingArguments('o')\nb.save_steps = 7", "save_steps", (DEFAULT, 500)),
        (
            "def f(args):\n    args.save_steps = 7\nTrainingArguments('o')",
            "save_steps",
            UNKNOWN,
        ),
        ("a = TrainingArguments('o')\na.set_save(steps=7)", "save_steps", UNKNOWN),
        (
            "@dataclass\nclass Own(TrainingArguments):\n    save_steps: int = 7\nOwn('o')",
            "save_steps",
            7,
        ),
        (
            "@dataclass\nclass Own(TrainingArguments):\n"
            "    save_steps: int = field(default=7)\nOwn('o')",
            "save_steps",
            7,
        ),
        (
            "@dataclass\nclass Own(TrainingArguments):\n"
            "    save_steps: int = field(default_factory=f)\nOwn('o')",
            "save_steps",
            UNKNOWN,
        ),
        (
            "@dataclass\nclass Own(TrainingArguments):\n    save_steps: int = 7\n"
            "Own('o', save_steps=8)",
            "save_steps",
            8,
        ),
    ],
)
def test_settings(text: str, option: str, expected: object) -> None:
    found = _only(_script(text)).setting(option)
    if expected == UNKNOWN:
        assert found is None
    elif isinstance(expected, tuple):
        assert found == Setting(expected[1])
    else:
        assert found is not None
        assert (found.value, found.is_default) == (expected, False)


def test_parsed_arguments_are_a_decision() -> None:
    script = _script(
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(model=m, args=args)"
    )
    assert not list(script.program.trainings.arguments("transformers"))
    (trainer,) = script.program.trainings.trainers("transformers")
    assert trainer.arguments is None


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("Trainer(m, TrainingArguments('o'))", True),
        ("a = TrainingArguments('o')\nTrainer(model=m, args=a)", True),
        ("def build(a):\n    return Trainer(m, a)\nbuild(TrainingArguments('o'))", True),
        ("a = TrainingArguments('o') if x else TrainingArguments('p')\nTrainer(m, a)", False),
        ("TrainingArguments('o')\nTrainer(m, given)", False),
        ("class Own(Trainer):\n    pass\nOwn(model=m, args=TrainingArguments('o'))", True),
        ("L.Trainer()", True),
    ],
)
def test_a_trainer_knows_the_arguments_that_it_certainly_gets(text: str, known: bool) -> None:
    (trainer,) = _script(text).program.trainings.trainers("transformers", "lightning")
    assert (trainer.arguments is not None) == known
