"""The settings of a loader in its source: who decides them, and the source with other ones."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from torchlint.cli.loadersettings import LoaderCall, find_call
from torchlint.harness.pace import LoaderSeen, Place
from torchlint.harness.tuning.report import Decision


def seen(place: Place | None, **options: object) -> LoaderSeen:
    values = {
        "place": place,
        "maker": "",
        "dataset": "Decoded",
        "same_data": 1,
        "length": 100,
        "passes": 10,
        "num_workers": 2,
        "prefetch_factor": 2,
        "pin_memory": False,
        "batch_size": 32,
        "persistent_workers": False,
        "draws": 10,
        "steps": 10,
        **options,
    }
    return LoaderSeen(**values)  # type: ignore[arg-type]


def loader_in(folder: Path, text: str, mark: str = "DataLoader(", **options: object) -> LoaderCall:
    """Find the call that ends with the first parenthesis that closes `mark`."""
    path = folder / "train.py"
    path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    source = path.read_text()
    at = source.index(mark) + len(mark)
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        at += 1
    last = source[:at].rpartition("\n")[2]
    place = Place(str(path), 1, source[:at].count("\n") + 1, len(last.encode()))
    found = find_call([seen(place, **options)])
    assert found is not None
    return found


def changed(call: LoaderCall, **values: int | None) -> str:
    (text,) = call.texts(values).values()
    return text


def test_a_literal_is_replaced_where_it_stands_and_a_missing_one_is_added(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        größe = "ä"; loader = DataLoader(
            data,
            batch_size=32,
            num_workers=0,  # why
        )
        """,
    )
    assert call.site().decided == {}
    assert (call.line, call.site().label) == (2, "`loader`")
    assert changed(call, num_workers=4, prefetch_factor=8) == dedent(
        """
        from torch.utils.data import DataLoader
        größe = "ä"; loader = DataLoader(
            data,
            batch_size=32,
            num_workers=4,  # why
            prefetch_factor=8,
        )
        """
    ).lstrip("\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DataLoader(data, 32, True, None, None, 0)", "DataLoader(data, 32, True, None, None, 4)"),
        ("DataLoader(data)", "DataLoader(data, num_workers=4)"),
        ("DataLoader(data, **more)", 'DataLoader(data, **{**more, "num_workers": 4})'),
        ("DataLoader(data, num_workers=a + 1)", "DataLoader(data, num_workers=4)"),
    ],
)
def test_every_spelling_can_be_measured(tmp_path: Path, before: str, after: str) -> None:
    head = "from torch.utils.data import DataLoader\n"
    call = loader_in(tmp_path, f"{head}x = {before}\n")
    assert changed(call, num_workers=4) == f"{head}x = {after}\n"


def test_a_constant_is_changed_where_it_is_given(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        WORKERS = 0  # few
        def load(data, workers=WORKERS):
            return DataLoader(data, num_workers=workers)
        load(1)
        """,
    )
    assert call.site().decided == {}
    assert "WORKERS = 4  # few\n" in changed(call, num_workers=4)


@pytest.mark.parametrize(
    ("value", "decision"),
    [
        (
            "args.num_workers",
            Decision(3, 'parser.add_argument("--num-workers", type=int)', "--num-workers"),
        ),
        ("min(4, args.num_workers)", Decision(3, "", "--num-workers")),
        ("load_config()['workers']", Decision(5, "load_config()['workers']")),
        ("min(4, 9)", Decision(5, "min(4, 9)")),
    ],
)
def test_a_value_from_elsewhere_names_the_line_that_decides(
    tmp_path: Path, value: str, decision: Decision
) -> None:
    call = loader_in(
        tmp_path,
        f"""
        import argparse; from torch.utils.data import DataLoader
        parser = argparse.ArgumentParser()
        parser.add_argument("--num-workers", type=int)
        args = parser.parse_args()
        loader = DataLoader(data, num_workers={value})
        """,
    )
    found = call.site().decided["num_workers"]
    assert (found.line, found.option) == (decision.line, decision.option)
    assert decision.text in found.text


def test_an_option_of_click_is_found_through_the_functions_parameter(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path,
        """
        import click; from torch.utils.data import DataLoader
        def load(data, count):
            return DataLoader(data, num_workers=count)
        @click.option("--workers", default=2)
        def main(workers):
            load([], workers)
        """,
    )
    assert call.site().decided["num_workers"].option == "--workers"


def test_what_a_splat_brings_is_not_written(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(data, **options, batch_size=4)
        """,
    )
    assert set(call.site().decided) == {"num_workers", "prefetch_factor", "pin_memory"}
    assert call.site().decided["num_workers"] == Decision(2, "**options")


def test_without_workers_what_is_meant_for_them_goes(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(x, num_workers=4, prefetch_factor=4, persistent_workers=True)
        """,
        persistent_workers=True,
    )
    assert "x, num_workers=0, prefetch_factor=None, persistent_workers=False)" in changed(
        call, num_workers=0
    )


def test_a_starred_call_has_no_room(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path, "from torch.utils.data import DataLoader\nDataLoader(*given, batch_size=3)\n"
    )
    assert set(call.fixed()) == {"num_workers", "prefetch_factor", "pin_memory"}


def test_a_loader_class_of_the_project_is_set_where_it_calls_torchs(tmp_path: Path) -> None:
    call = loader_in(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        class Fast(DataLoader):
            def __init__(self, data, workers):
                super().__init__(data, num_workers=workers)
        """,
        mark="__init__(data, ",
    )
    assert "super().__init__(data, num_workers=4)" in changed(call, num_workers=4)


def test_a_call_that_makes_no_loader_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("trainer.fit(net, data)\n")
    place = Place(str(tmp_path / "train.py"), 1, 1, len("trainer.fit(net, data)"))
    assert find_call([seen(place), seen(None)]) is None


def test_where_python_knows_the_line_alone_the_loader_on_it_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("from torch.utils.data import DataLoader\nx = wrap(DataLoader(load(3), 4))\n")
    call = find_call([seen(Place(str(path), 2))])
    assert call is not None
    assert "wrap(DataLoader(load(3), 4, num_workers=2))" in changed(call, num_workers=2)
