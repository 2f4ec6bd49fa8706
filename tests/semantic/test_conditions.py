"""What somebody switches on when it is needed, and settings that ask for determinism."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", textwrap.dedent(text)))


SWITCHED = {
    "a condition": "if debug:\n    watch()\n",
    "its other branch": "if not debug:\n    pass\nelse:\n    watch()\n",
    "an expression": "debug and watch()\n",
    "an error": "try:\n    run()\nexcept ValueError:\n    watch()\n",
    "a test": "def test_it():\n    watch()\n",
    "a helper behind a condition": "def helper():\n    watch()\nif debug:\n    helper()\n",
    "a helper that nobody calls": "def debug_it():\n    watch()\n",
}
LEFT_ON = {
    "a line of the module": "watch()\n",
    "under the main guard": 'if __name__ == "__main__":\n    watch()\n',
    "a function that is called": "def main():\n    watch()\nmain()\n",
    "a function for others to call": "def main():\n    watch()\n",
    "a helper with one caller that always runs": (
        "def debug_it():\n    watch()\nif debug:\n    debug_it()\ndebug_it()\n"
    ),
}


@pytest.mark.parametrize(
    ("text", "conditional"),
    [(text, True) for text in SWITCHED.values()] + [(text, False) for text in LEFT_ON.values()],
    ids=[*SWITCHED, *LEFT_ON],
)
def test_is_conditional(text: str, conditional: bool) -> None:
    script = _script("from tools import watch\n" + text)
    (site,) = script.calls.of("tools.watch")
    assert script.loops.conditions.is_conditional(site.node, "debug") is conditional


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("torch.backends.cudnn.deterministic = True", ["torch.backends.cudnn.deterministic"]),
        ("torch.backends.cudnn.deterministic = False", []),
        ("torch.backends.cudnn.enabled = False", ["torch.backends.cudnn.enabled"]),
        ("torch.use_deterministic_algorithms(True)", ["torch.use_deterministic_algorithms"]),
        ("torch.use_deterministic_algorithms(mode)", []),
        ("torch.set_deterministic_debug_mode(2)", ["torch.set_deterministic_debug_mode"]),
        ('os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"', ["CUBLAS_WORKSPACE_CONFIG"]),
        ('os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace', []),
    ],
)
def test_settings_of_determinism(line: str, names: list[str]) -> None:
    script = _script(f"import os\nimport torch\n{line}\n")
    assert [setting.name for setting in script.program.determinism.settings()] == names
