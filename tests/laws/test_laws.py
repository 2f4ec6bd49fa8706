"""Laws that hold without expected output, on a few fixtures; `benchmarks/laws.py` takes all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from attributes import handed_over, kept_on_self  # noqa: E402
from cutting import cut, write  # noqa: E402
from examples import outcomes as of_examples  # noqa: E402
from factoring import built_by_function, computed_by_function, configured  # noqa: E402
from laws import append, compared, found, outcomes  # noqa: E402
from neighbours import HAND, beside, donor_of  # noqa: E402
from reshaping import Reshaped  # noqa: E402
from restructuring import passed_on, stepped  # noqa: E402

RULES = ROOT / "fixtures" / "rules"
HOSTS = [
    RULES / "tl301_full_precision_training" / "slow.py",
    RULES / "tl304_clip_before_unscale" / "slow.py",
    ROOT / "fixtures" / "scripts" / "gan" / "before.py",
    ROOT / "fixtures" / "quiet" / "cpu_only.py",
]


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.parent.name)
def test_an_unrelated_definition_changes_no_finding(host: Path) -> None:
    breaches = [each for outcome in append(host, list(HAND.items())) for each in outcome.breaches]
    assert breaches == []


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.parent.name)
def test_the_order_of_functions_changes_no_finding(host: Path) -> None:
    breaches = [each for outcome in outcomes("order", host, "hand") for each in outcome.breaches]
    assert breaches == []


@pytest.mark.parametrize(
    "law", ["step", "options", "class", "trainer", "factory", "loss", "config"]
)
@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.parent.name)
def test_another_structure_changes_no_finding(host: Path, law: str) -> None:
    breaches = [each for outcome in outcomes(law, host, "hand") for each in outcome.breaches]
    assert [each for each in breaches if each.what != "fix"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (stepped, "found = step_1("),
        (passed_on, "Loss(factor * number, **options_"),
        (kept_on_self, "self.found += loss.backward()"),
        (handed_over, "self.step(number)"),
        (built_by_function, "factor, found = set_up()"),
        (computed_by_function, "loss = compute_loss_9(factor, number)"),
        (configured, "Loss(factor * number, shift=settings.shift)"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_another_shape_runs_like_it(change: Callable[[str], Reshaped | None], said: str) -> None:
    text = (
        "class Loss:\n"
        "    def __init__(self, value, shift):\n"
        "        self.value = value + shift\n"
        "    def backward(self):\n"
        "        return self.value\n"
        "def main():\n"
        "    found, factor = 0, 2\n"
        "    for number in range(4):\n"
        "        loss = Loss(factor * number, shift=1)\n"
        "        found += loss.backward()\n"
        "    return found\n"
        'if __name__ == "__main__":\n'
        "    print(main())\n"
    )
    made = change(text)
    assert made is not None
    assert said in made.text
    ran = subprocess.run(
        [sys.executable, "-c", made.text], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "16\n"


def test_examples_keep_their_findings_in_another_shape() -> None:
    made = of_examples(["class", "factory", "loss", "config"], "TL301")
    assert len(made) > 20
    assert {each.what for each in made} <= {"kept", "moved"}


def test_what_differs_is_a_breach() -> None:
    slow = "import torch\nfor x in loader:\n    total += net(x.cuda()).sum().item()\n"
    before = found(f"{slow}    loss.backward()\n", "train.py")
    made = compared("append", "train.py", "a change", before, found(slow, "train.py"))
    assert made.breaches


def test_donors_keep_to_themselves() -> None:
    text = "import torch\nrate = 1\ndef a():\n    return rate\ndef b():\n    return torch.ones(1)\n"
    donor = donor_of(text)
    assert donor == "import torch\n\ndef b_apart():\n    return torch.ones(1)\n"
    assert beside("import torch\n", donor) == "def b_apart():\n    return torch.ones(1)\n"
    assert beside("torch = 1\n", donor) is None


def test_modules_of_a_script_run_like_it(tmp_path: Path) -> None:
    text = (
        "import math\nrate = math.pi\n"
        "def area(r):\n    return rate * r * r\n"
        "def main():\n    print(area(2))\n"
        'if __name__ == "__main__":\n    main()\n'
    )
    for moved in (False, True):
        modules = cut(text, moved=moved)
        assert modules is not None
        paths = write(modules, tmp_path / str(moved))
        assert len(paths) == 3
        ran = subprocess.run(
            [sys.executable, paths[-1]], capture_output=True, text=True, check=True
        )
        assert ran.stdout == "12.566370614359172\n"
    assert cut("count = 0\ndef more():\n    global count\n    count += 1\n") is None
