"""The page of a verification, as text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report.html_samples import curves, outcome, report, step

from torchlint.harness.judging.verdict import Curves, Report, Verdict
from torchlint.report.html import verification_html
from torchlint.report.htmlcharts import losses, one_step, step_times

SCRIPT = "import torch\nslow = True\n"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    script = tmp_path_factory.mktemp("page") / "train.py"
    script.write_text(SCRIPT)
    return {str(script): SCRIPT.replace("True", "False")}


@pytest.fixture(scope="module")
def made(texts: dict[str, str]) -> Report:
    return report(Path("train.py"), (outcome("all", ("TL101",), Verdict.FASTER, texts),))


@pytest.fixture(scope="module")
def page(made: Report) -> str:
    return verification_html(made)


def test_the_page_is_whole_in_itself(page: str) -> None:
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:,)""", page)
    assert not re.search(r"url\((?!#)|@import", page)
    assert "default-src 'none'" in page
    assert len(page) < 150_000


def test_no_name_of_a_colour_is_left_to_be_put_in(page: str) -> None:
    used = set(re.findall(r"var\(--([a-z-]+)\)", page))
    assert used <= set(re.findall(r"--([a-z-]+):", page))
    assert {"original", "fixed", "data", "forward", "backward", "optimizer"} <= used


def test_all_fixes_are_counted_where_none_was_measured_alone(made: Report) -> None:
    assert "<p>1 FASTER. A speed above 1x" in verification_html(made)
    once = verification_html(replace(made, noise=None))
    assert "50 steps after 10 of warm-up, not what follows them, once each" in once
    assert "against itself" not in once


def test_ids_are_each_there_once(texts: dict[str, str]) -> None:
    outcomes = tuple(
        outcome("rule", (code,), Verdict.FASTER, {**texts}) for code in ("TL101", "TL102", "TL201")
    )
    page = verification_html(report(Path("train.py"), outcomes))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)
    assert set(re.findall(r'xlink:href="#([^"]+)"', page)) <= set(ids)


def test_the_same_report_gives_the_same_page(made: Report, page: str) -> None:
    assert verification_html(made) == page


def test_the_page_of_a_report_without_fixes_says_so() -> None:
    page = verification_html(report(Path("train.py"), ()))
    assert "No fix to verify" in page
    assert "<table" not in page


def test_a_fix_that_was_not_timed_has_the_curves_that_there_are(texts: dict[str, str]) -> None:
    failed = replace(
        outcome("all", ("TL101",), Verdict.DIFFERENT, texts), comparison=None, after=Curves()
    )
    page = verification_html(report(Path("train.py"), (failed,)))
    assert "not timed" in page
    assert 'aria-label="step times"' not in page
    assert 'aria-label="losses"' in page


def test_steps_far_beyond_the_others_are_counted_and_not_drawn() -> None:
    slow = replace(curves(0.01), times=(((0.01,) * 99 + (3.0,),),))
    chart = step_times(slow, curves(0.01))
    assert chart is not None
    assert "not drawn" in chart.note
    assert step_times(Curves(), Curves()) is None


def test_runs_that_were_timed_whole_are_called_runs(texts: dict[str, str]) -> None:
    whole = replace(
        outcome("all", ("TL101",), Verdict.SAME, texts),
        before=Curves((((1.0, 1.0),),)),
        after=Curves((((1.0,),),)),
    )
    page = verification_html(replace(report(Path("train.py"), (whole,)), whole=True))
    assert "time of a run (s)" in page
    assert "time of a step" not in page


def test_units_follow_the_times() -> None:
    for seconds, unit in ((2.0, "(s)"), (2e-3, "(ms)"), (2e-6, "(µs)")):
        chart = step_times(curves(seconds), curves(seconds))
        assert chart is not None
        assert f"time of a step {unit}" in chart.svg


def test_losses_that_are_no_numbers_are_counted() -> None:
    odd = replace(curves(0.01), losses=(1.0, math.nan, math.inf), loss_steps=(0, 1, 2))
    chart = losses(odd, odd)
    assert chart is not None
    assert chart.note == "4 losses are not finite and not drawn"
    assert losses(Curves(), Curves()) is None


def test_few_losses_of_a_step_are_curves_and_many_are_averaged() -> None:
    two = replace(curves(0.01), losses=(1.0, 9.0) * 5, loss_steps=tuple(n // 2 for n in range(10)))
    chart = losses(two, Curves())
    assert chart is not None
    assert chart.note == "a curve for each loss of a step"
    many = replace(two, losses=(1.0, 9.0) * 10, loss_steps=tuple(n // 4 for n in range(20)))
    chart = losses(many, Curves())
    assert chart is not None
    assert chart.note == "the mean of a step's losses"


def test_hovering_tells_the_values() -> None:
    same = curves(0.01)
    times, drawn, phases = step_times(same, same), losses(same, same), one_step(step(0.01), None)
    assert times is not None
    assert drawn is not None
    assert phases is not None
    assert re.search(r"<title>[\d.]+ to [\d.]+ ms: original [\d.]+ %, fixed [\d.]+ %", times.svg)
    assert re.search(r"<title>step 1: original [\d.]+, fixed [\d.]+</title>", drawn.svg)
    assert re.search(r"<title>forward: [\d.]+ ms</title>", phases.svg)


def test_extreme_losses_still_have_an_axis() -> None:
    for values in ((0.0, 0.0), (-1.7e308, 1.7e308), (1e-320, 5e-324), (3e30, 3e30)):
        odd = replace(curves(0.01), losses=values, loss_steps=(0, 1))
        chart = losses(odd, odd)
        assert chart is not None
        assert "inf" not in chart.svg
        assert "nan" not in chart.svg


def test_a_step_of_one_side_alone_is_drawn() -> None:
    chart = one_step(step(0.01), None)
    assert chart is not None
    assert "original" in chart.svg
    assert "fixed" not in chart.svg
    assert one_step(None, None) is None
