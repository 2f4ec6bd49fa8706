"""How far the fixes of TL101 to TL103 can be trusted, and that they come out as one call."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.finding import Fix
from torchlint.registry import load_registry
from torchlint.source import Source

CODES = ("TL101", "TL102", "TL103")
REGISTRY = load_registry()
SCRIPT = """\
import torch
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision import datasets, transforms


class Halves(Dataset):
    def __init__(self, whole):
        self.whole = whole

    def __len__(self):
        return len(self.whole)

    def __getitem__(self, index):
        return self.whole[index][0] / 2, self.whole[index][1]


def main(model):
    train = {dataset}
    loader = DataLoader(train, batch_size=64, shuffle=True)
    for epoch in range(3):
        for x, y in loader:
            model(x.cuda()).backward()


{start}
"""
GUARDED = 'if __name__ == "__main__":\n    main(torch.nn.Linear(2, 2).cuda())'
PLAIN = "datasets.MNIST('.', transform=transforms.ToTensor())"


def _settings(unsafe: bool) -> Settings:
    return Settings(select=CODES, unsafe_fixes=unsafe)


def _source(dataset: str = PLAIN, start: str = GUARDED) -> Source:
    return Source("train.py", SCRIPT.format(dataset=dataset, start=start))


def _workers_fix(source: Source) -> Fix | None:
    settings = _settings(True)
    result = check_source(source, REGISTRY.select(settings), settings)
    return next(finding.fix for finding in result.findings if finding.code == "TL101")


def test_workers_are_exact_where_nothing_is_random_and_the_guard_is_there() -> None:
    fix = _workers_fix(_source())
    assert fix is not None
    assert (fix.safety.word, fix.because) == ("exact", "")


@pytest.mark.parametrize(
    ("dataset", "because"),
    [
        (
            "datasets.MNIST('.', transform=transforms.RandomCrop(3))",
            "`RandomCrop` draws random numbers",
        ),
        (
            "datasets.MNIST('.', transform=transforms.Lambda(lambda x: x))",
            "its lambda cannot be pickled",
        ),
        (
            "Halves(datasets.MNIST('.', transform=transforms.RandomCrop(3)))",
            "`RandomCrop` draws random numbers",
        ),
        (
            "Halves(random_split(datasets.MNIST('.', transform=lambda x: x), [2, 1])[0])",
            "its lambda cannot be pickled",
        ),
        ("elsewhere.Images()", "`elsewhere.Images` is not visible here"),
    ],
)
def test_workers_are_unsafe_for_a_reason(dataset: str, because: str) -> None:
    fix = _workers_fix(_source(dataset))
    assert fix is not None
    assert fix.safety.word == "unsafe"
    assert because in fix.because


def test_a_file_that_is_never_run_needs_the_guard_elsewhere() -> None:
    fix = _workers_fix(_source(start="# imported by others"))
    assert fix is not None
    assert fix.safety.word == "unsafe"
    assert "__main__" in fix.because


def test_no_fix_without_the_guard() -> None:
    assert _workers_fix(_source(start="main(torch.nn.Linear(2, 2).cuda())")) is None


@pytest.mark.parametrize("unsafe", [True, False], ids=["all", "safe"])
def test_both_fixes_come_out_as_one_call(unsafe: bool) -> None:
    settings = _settings(unsafe)
    rules = REGISTRY.select(settings)
    fixed = fix_source(_source(), rules, settings)
    assert fixed.is_whole
    kept = ",\n                        persistent_workers=True" if unsafe else ""
    call = (
        "    loader = DataLoader(train, batch_size=64, shuffle=True, "
        "num_workers=min(4, os.cpu_count() or 1),\n"
        f"                        pin_memory=torch.cuda.is_available(){kept})"
    )
    expected = _source().text.replace(
        "    loader = DataLoader(train, batch_size=64, shuffle=True)", call
    )
    assert fixed.after.text == "import os\n" + expected
    assert not fix_source(fixed.after, rules, settings).changed


def test_a_call_in_lines_gets_lines() -> None:
    text = textwrap.dedent(
        """\
        import os
        import torch
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms


        def main(model):
            train = datasets.MNIST(".", transform=transforms.ToTensor())
            loader = DataLoader(
                train,
                batch_size=64,  # fits
            )
            for x, y in loader:
                model(x.cuda())


        if __name__ == "__main__":
            main(torch.nn.Linear(2, 2))
        """
    )
    settings = _settings(True)
    fixed = fix_source(Source("train.py", text), REGISTRY.select(settings), settings)
    added = (
        "        num_workers=min(4, os.cpu_count() or 1),\n"
        "        pin_memory=torch.cuda.is_available(),\n"
    )
    comment = "        batch_size=64,  # fits\n"
    assert fixed.after.text == text.replace(comment, comment + added)
