"""What `check` shows first: impact, measured cost, order, and what is most worth fixing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from cli_shell import TRAIN, Shell
from cli_terminal import Terminal

SCRIPT = Path(__file__).parents[2] / "fixtures" / "scripts" / "vae" / "before.py"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;.*?\x1b\\")
RED, GREEN, MAGENTA = "\x1b[31m", "\x1b[32m", "\x1b[35m"


@pytest.fixture
def vae(quick: Shell) -> Shell:
    """Return a folder with a script that has findings of every impact."""
    shutil.copy(SCRIPT, quick.folder / "train.py")
    return quick


def lines(shell: Shell, *options: str) -> list[str]:
    return shell.run(
        "check", "--no-cache", "--output-format", "concise", *options
    ).stdout.splitlines()


def codes(shell: Shell, *options: str) -> list[str]:
    """Return the codes of the printed findings, in order."""
    return [
        found[1] for line in lines(shell, *options) if (found := re.search(r": (\w+) \[", line))
    ]


def test_a_finding_shows_its_impact_and_what_was_measured(vae: Shell) -> None:
    said = "\n".join(lines(vae))
    assert re.search(r"TL801 \[anomaly-detection\] high, \d\.\dx on \w+: ", said)
    assert re.search(r"TL102 \[unpinned-loader\] medium: ", said)


def test_a_figure_of_another_device_is_not_shown(vae: Shell) -> None:
    assert " on CPU: " in "\n".join(lines(vae, "--target-device", "cpu"))
    assert " on CPU: " not in "\n".join(lines(vae, "--target-device", "cuda"))


def test_low_findings_are_counted_and_shown_when_asked(vae: Shell) -> None:
    assert "TL401" not in codes(vae)
    assert "3 of low impact hidden: `--show-low` prints them." in lines(vae)
    assert "TL401" in codes(vae, "--show-low")
    assert "TL401" in codes(vae, "--extend-select", "TL401")
    assert "TL401" in codes(vae, "--ignore", "ALL", "--extend-select", "TL401")


def test_low_findings_alone_are_printed(quick: Shell) -> None:
    quick.write("a.py", "heavy()\n")
    quick.write("b.py", "heavy()\n")
    assert codes(quick) == ["XY401", "XY401"]
    quick.write("c.py", "slow()\n")
    assert codes(quick) == ["XY201"]
    assert "2 of low impact hidden: `--show-low` prints them." in lines(quick)


def test_the_order_of_findings(quick: Shell) -> None:
    quick.write("a.py", "heavy()\nrisky()\nslow()\n")
    quick.write("b.py", "slow()\n")
    by_file = ["XY401", "XY301", "XY201", "XY201"]
    assert codes(quick, "--show-low") == by_file
    assert codes(quick, "--show-low", "--sort", "impact") == by_file[1:][::-1][:2] + by_file[1::-1]
    assert codes(quick, "--show-low", "--sort", "code") == sorted(by_file)


def test_by_cost_what_was_measured_to_gain_most_comes_first(vae: Shell) -> None:
    ordered = codes(vae, "--sort", "cost")
    assert ordered[0] == "TL801"
    assert ordered.index("TL108") < ordered.index("TL202") < ordered.index("TL102")


def test_the_last_line_names_what_is_most_worth(vae: Shell) -> None:
    assert re.fullmatch(
        r"Most worth: TL801 \(\d\.\dx on \w+\), TL108 \(.*\), TL202\. "
        r"`torchlint verify train\.py` proves it\.",
        lines(vae)[-1],
    )
    vae.write("b.py", TRAIN)
    assert lines(vae, "--extend-select", "XY")[-1].endswith("`torchlint verify SCRIPT` proves it.")
    assert lines(vae, "--quiet")[-1].startswith("train.py:")


def test_findings_of_one_rule_are_not_ranked(quick: Shell) -> None:
    quick.write("a.py", "slow()\nslow()\n")
    assert lines(quick)[-1].startswith("Found 2 findings")


def test_severity_and_safety_have_their_colors(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    said = quick.check("--color", "always", "--output-format", "concise").stdout
    high, medium, low = said.splitlines()[:3]
    assert f"{RED}\x1b[1mXY201" in high
    assert f"{RED}\x1b[1mhigh" in high
    assert f"{GREEN}(exact fix)" in high
    assert f"{MAGENTA}\x1b[1mXY301" in medium
    assert f"{MAGENTA}(unsafe fix)" in medium
    assert RED not in low
    assert "\x1b[1mlow" in low


def test_a_report_fits_eighty_columns(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shutil.copy(SCRIPT, tmp_path / "train.py")
    with Terminal(shell, "check", "--no-cache", "train.py", columns=80) as terminal:
        code, said = terminal.end()
    shown = [ESCAPES.sub("", line) for line in said.splitlines()]
    assert code == 1
    assert len(shown) > 100
    assert [line for line in shown if len(line) > 80] == []
