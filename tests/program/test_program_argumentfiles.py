"""YAML and JSON that code names: which file is meant, and on which row each option stands."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from projects import write

from torchlint.program.argumentfiles import MOST_BYTES, as_python
from torchlint.program.index import Index, digest
from torchlint.semantic.view import STARTED

TRAIN = """import json
from transformers import TrainingArguments
args = TrainingArguments(**json.load(open("args.json")))
"""


def rows(path: str, text: str) -> dict[str, tuple[object, int]]:
    """Return the options of a file with their rows."""
    line = ast.parse(as_python(path, text)).body[0]
    assert isinstance(line, ast.Expr)
    assert isinstance(line.value, ast.Dict)
    found = {}
    for key, value in zip(line.value.keys, line.value.values, strict=True):
        known = isinstance(key, ast.Constant) and not isinstance(value, ast.Name)
        if isinstance(key, ast.Constant) and known:
            found[str(key.value)] = ast.literal_eval(value), value.lineno
    return found


def test_json() -> None:
    text = '\n  {\n "a": true, "b": [null, -1.5e3],\n\n "true": "null \\u00e9 \\/ \'"}\n'
    assert rows("a.json", text) == {
        "a": (True, 3),
        "b": ([None, -1500.0], 3),
        "true": ("null é / '", 5),
    }


def test_yaml() -> None:
    text = "# first\na: 1\nb:\n  c: yes\n  d: [1, 'x']\ne: &E {f: 1e3}\ng: *E\nh: .inf\ni: 1.0e-3\n"
    assert rows("a.yaml", text) == {
        "a": (1, 2),
        "b": ({"c": True, "d": [1, "x"]}, 3),
        "e": ({"f": "1e3"}, 6),
        "g": ({"f": "1e3"}, 7),
        "i": (0.001, 9),
    }


MANY = ["a: &a [0, 0]", *(f"{b}: &{b} [*{a}, *{a}, *{a}]" for a, b in pairwise("abcdefghi"))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "- a",
        "a: 1\n---\nb: 2",
        "a: [",
        "a: &a [*a]",
        "\n".join(MANY),
        '{"a":' * 300 + "1" + "}" * 300,
        "\x00",
    ],
)
@pytest.mark.parametrize("path", ["a.json", "a.yaml"])
def test_what_is_no_mapping_or_hostile(path: str, text: str) -> None:
    assert as_python(path, text) == ""


def test_tags_of_python_run_nothing() -> None:
    text = "a: !!python/object/apply:os.system [ls]\nb: !!python/name:os.system\nc: !!int x\nd: 2\n"
    assert rows("a.yml", text)["d"] == (2, 4)
    assert "system" not in as_python("a.yml", text)


def test_the_file_in_the_folder_or_above_it(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "", "args.json": '{"a": 1}', "scripts/train.py": TRAIN})
    index = Index(tmp_path)
    assert index.view(tmp_path / "scripts/train.py").files == {"args.json": "args.json"}
    write(tmp_path, {"scripts/args.json": '{"a": 2}'})
    index.refresh()
    assert index.view(tmp_path / "scripts/train.py").files == {}


def test_a_view_changes_with_the_file(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "", "args.json": '{"a": 1}', "train.py": TRAIN})
    before = digest(Index(tmp_path).view(tmp_path / "train.py"))
    write(tmp_path, {"args.json": '{"a": 2}'})
    index = Index(tmp_path)
    assert digest(index.view(tmp_path / "train.py")) != before
    assert str(tmp_path / "args.json") in index.files


def test_large_files_hold_data(tmp_path: Path) -> None:
    text = '{"a": "' + "x" * MOST_BYTES + '"}'
    write(tmp_path, {"pyproject.toml": "", "args.json": text, "train.py": TRAIN})
    assert Index(tmp_path).view(tmp_path / "train.py").files == {}


def test_what_trains_nothing_reads_nothing(tmp_path: Path) -> None:
    text = 'import json\nx = json.load(open("args.json"))\n'
    write(tmp_path, {"pyproject.toml": "", "args.json": '{"a": 1}', "serve.py": text})
    assert Index(tmp_path).view(tmp_path / "serve.py").files == {}


PARSED = """from trl import SFTConfig, SFTTrainer, TrlParser
(args,) = TrlParser(SFTConfig).parse_args_and_config()
SFTTrainer("model", args).train()
"""


@pytest.mark.parametrize(
    ("commands", "read"),
    [
        ("accelerate launch \\\n  src/train.py \\\n --config=../a.yaml --eval_steps 5", "a.yaml"),
        ("python train.py --config a.yaml --logging_steps 5", None),
        ("# python train.py --config a.yaml", None),
        ("python pretrain.py --config a.yaml", None),
        ("python train.py --config a.yaml\npython train.py --config b.yaml", None),
    ],
)
def test_the_file_with_which_shell_scripts_start_a_script(
    commands: str, read: str | None, tmp_path: Path
) -> None:
    options = {"a.yaml": "logging_steps: 1\n", "b.yaml": "logging_steps: 2\n"}
    scripts = {"scripts/run.sh": commands, "src/train.py": PARSED}
    write(tmp_path, {"pyproject.toml": "", **options, **scripts})
    files = Index(tmp_path).view(tmp_path / "src/train.py").files
    assert files == ({} if read is None else {STARTED: read})
