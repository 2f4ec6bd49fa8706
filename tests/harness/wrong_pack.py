"""A pack of rules whose fixes are wrong and call themselves exact, as an installed distribution."""

from __future__ import annotations

from pathlib import Path

from pack_pages import page

__all__ = ["WRONG", "install"]

WRONG = {
    "another learning rate": ("lr=0.1)", "lr=0.100001)"),
    "gradients that are never cleared": ("optimizer.zero_grad()", "pass"),
    "data in another order": ("shuffle=True", "shuffle=False"),
    "another reduction": (".pow(2).mean()", ".pow(2).sum()"),
    "dropout switched off": ("net.train()", "net.eval()"),
    "a dropped step": ("optimizer.step()", "epoch % 2 or optimizer.step()  #"),
    "a detached layer": ("hidden = first(x)", "hidden = first(x).detach()"),
    "another seed": ("manual_seed(0)", "manual_seed(1)"),
    "another dtype": ("second(hidden)", "second(hidden).bfloat16()"),
    "a scaled gradient": (
        "loss.backward()",
        "loss.backward(gradient=torch.tensor(1.0001))",
    ),
    "other statistics of batch norm": ("BatchNorm1d(8)", "BatchNorm1d(8, momentum=0.2)"),
    "a crash": ("y.float()", "y.afloat()"),
    "weight decay, at the place of the first": ("lr=0.1)", "lr=0.1, weight_decay=1e-6)"),
}
"""What each does to a training script: the text that it takes, and what it makes of it."""

_RULE = '''
"""A wrong rule."""

from torchlint.api import Edit, Finding, Fix, Rule, Span

class Wrong{number}(Rule):
    def check(self, script):
        before, after = {change!r}
        at = script.source.text.find(before)
        if at >= 0:
            span = Span(at, at + len(before))
            yield Finding(self.code, span, "wrong", Fix("Harm", (Edit(span, after),), self.safety))
'''


def install(site: Path) -> tuple[str, ...]:
    """Install the pack below `site`; give the codes of its rules, in the order of `WRONG`."""
    info = site / "wrong_pack-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchlint.rules]\nwrong = wrongpack\n")
    package = site / "wrongpack"
    package.mkdir()
    (package / "__init__.py").touch()
    numbers = range(100, 100 + len(WRONG))
    for number, change in zip(numbers, WRONG.values(), strict=True):
        text = _RULE.format(number=number, change=change)
        module = package / f"wr{number}_wrong_{number}.py"
        module.write_text(text)
        header = page(f"WR{number}", f"wrong-{number}", safety="exact")
        module.with_suffix(".md").write_text(header)
    return tuple(f"WR{number}" for number in numbers)
