"""TL801: autograd's anomaly detection, left on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Record, Rule, Safety, Script

_SETTER: Final = "torch.autograd.set_detect_anomaly"
_CONTEXT: Final = "torch.autograd.detect_anomaly"
_COST: Final = "traces every operation and makes steps 3 to 9 times slower"
_TITLE: Final = "Take the anomaly detection out"
_TOGETHER: Final = 20
"""How many places at most are taken out by one fix, so that the imports go with the last."""


class AnomalyDetection(Rule):
    """
    ## What it does
    Flags anomaly detection that is switched on for good: `set_detect_anomaly(True)`,
    `with detect_anomaly():` and Lightning's `Trainer(detect_anomaly=True)`.

    ## Why it is slow
    For every operation of the forward pass autograd keeps a Python traceback, and after every one
    of the backward pass it looks for NaN. A training step took 3.2 to 3.6 times as long with layers
    of 256, and 8.4 to 8.8 times with small ones.

    ## When not to
    Keep it while you hunt a NaN, best behind a flag: a call that an argument or an `if` switches
    is never flagged.

    ## Fix safety
    Exact, unless a NaN turns up: then the run goes on where it used to stop with an error.
    """

    code = "TL801"
    name = "anomaly-detection"
    summary = "anomaly detection is left on"
    impact = "high"
    safety = Safety.EXACT
    articles = ("S2", "S3.13")
    needs = ("detect_anomaly",)
    about = ("torch", "lightning")

    invalid = {
        "for the whole program": """
              import torch
            - torch.autograd.set_detect_anomaly(True)
              x = torch.ones(1, requires_grad=True)
            """,
        "the comment behind it stays": """
              import torch
            - torch.autograd.set_detect_anomaly(True)  # where do the NaNs come from?
            + # where do the NaNs come from?
              x = torch.ones(1)
            """,
        "one gap is left of two": """
              import torch

            - torch.autograd.set_detect_anomaly(True)
            -

              def main():
                  return torch.ones(1)
            """,
        "by keyword": """
              import torch
            - torch.autograd.set_detect_anomaly(mode=True)
              x = torch.ones(1)
            """,
        "without looking for NaN it still traces": """
              import torch
            - torch.autograd.set_detect_anomaly(True, check_nan=False)
              x = torch.ones(1)
            """,
        "through the module's file": """
              import torch
            - torch.autograd.anomaly_mode.set_detect_anomaly(True)
            - with torch.autograd.anomaly_mode.detect_anomaly():
            -     x = torch.ones(1)
            + x = torch.ones(1)
            """,
        "as a context": """
              import torch
              def train(model, loader):
                  for x, y in loader:
            -         with torch.autograd.detect_anomaly():
            -             loss = model(x, y)
            -             loss.backward()  # where it stops
            +         loss = model(x, y)
            +         loss.backward()  # where it stops
                      torch.clamp_(y, 0)
            """,
        "a context that is told to look for NaN": """
              import torch
              loss = torch.ones(1, requires_grad=True).sum()
            - with torch.autograd.detect_anomaly(check_nan=True):
            -     loss.backward()
            + loss.backward()
            """,
        "the setter as a context": """
              import torch
              loss = torch.ones(1, requires_grad=True).sum()
            - with torch.autograd.set_detect_anomaly(True):
            -     loss.backward()
            + loss.backward()
            """,
        "one context of several": """
              import torch
              x = torch.ones(1, requires_grad=True)
            - with torch.autograd.detect_anomaly(), torch.autocast("cpu"):
            + with torch.autocast("cpu"):
                  x.sum().backward()
            - with torch.autocast("cpu"), torch.autograd.set_detect_anomaly(True):
            + with torch.autocast("cpu"):
                  x.sum().backward()
            """,
        "the import goes along when nothing else needs it": """
              import torch
            - from torch.autograd import detect_anomaly
              x = torch.ones(1, requires_grad=True)
            - with detect_anomaly():
            -     x.sum().backward()
            + x.sum().backward()
            """,
        "two uses of one import": """
              import torch
            - from torch.autograd import Variable, set_detect_anomaly as watch
            + from torch.autograd import Variable
              x = Variable(torch.ones(1), requires_grad=True)
            - watch(True)
            - with watch(True):
            -     x.sum().backward()
            + x.sum().backward()
            """,
        "the import stays while something else needs it": """
              import argparse
              from torch.autograd import set_detect_anomaly
              args = argparse.Namespace(debug=False)
            - set_detect_anomaly(True)
              if args.debug:
                  set_detect_anomaly(True)
            """,
        "one inside the other": """
              from torch import autograd
              x = autograd.Variable(None)
            - with autograd.detect_anomaly():
            -     with autograd.detect_anomaly():
            -         x.backward()
            + x.backward()
            """,
        "all that a function did": """
              import torch
              def prepare():
            -     torch.autograd.set_detect_anomaly(True)
            +     pass
              prepare()
              x = torch.ones(1)
            """,
        "under the main guard": """
              import torch
              if __name__ == "__main__":
            -     torch.autograd.set_detect_anomaly(True)
                  x = torch.ones(1)
            """,
        "a constant that only it reads": """
              import torch
            - DETECT_ANOMALY = True
            + DETECT_ANOMALY = False
            - torch.autograd.set_detect_anomaly(DETECT_ANOMALY)
            + torch.autograd.set_detect_anomaly(DETECT_ANOMALY)
            """,
        "a constant that others read as well: reported, left alone": """
              import torch
              DEBUG = True
            ! torch.autograd.set_detect_anomaly(DEBUG)
              print(DEBUG)
            """,
        "two statements on a line: reported, left alone": """
              import torch
            ! x = torch.ones(1); torch.autograd.set_detect_anomaly(True)
            """,
        "a suite on the line of the `with`: reported, left alone": """
              import torch
              x = torch.ones(1, requires_grad=True)
            ! with torch.autograd.detect_anomaly(): x.sum().backward()
            """,
        "kept in a name: reported, left alone": """
              import torch
              x = torch.ones(1, requires_grad=True)
            ! watch = torch.autograd.detect_anomaly()
              with watch:
                  x.sum().backward()
            """,
        "entered on a stack": """
              import contextlib
              import torch
              with contextlib.ExitStack() as stack:
            -     stack.enter_context(torch.autograd.detect_anomaly())
                  torch.ones(1, requires_grad=True).backward()
            """,
        "Lightning's trainer": """
              import lightning as L
            - trainer = L.Trainer(max_epochs=3, detect_anomaly=True)
            + trainer = L.Trainer(max_epochs=3)
            """,
        "Lightning's trainer by its older name, one argument a line": """
              from pytorch_lightning import Trainer
              trainer = Trainer(
                  max_epochs=3,
            -     detect_anomaly=True,  # NaN at step 900
            +     # NaN at step 900
                  accelerator="auto",
              )
            """,
        "in a dictionary for Lightning's trainer: reported, left alone": """
              import lightning as L
              import torch
              options = {"max_epochs": 3, "detect_anomaly": True}
            ! trainer = L.Trainer(**options)
              print(options)
            """,
    }
    valid = {
        "a test of what the trainer does then": """
            import lightning as L
            def test_stops_at_nan(tmp_path):
                trainer = L.Trainer(default_root_dir=tmp_path, detect_anomaly=True)
            """,
        "switched off": """
            import torch
            torch.autograd.set_detect_anomaly(False)
            with torch.autograd.set_detect_anomaly(mode=False):
                pass
            """,
        "an argument decides": """
            import argparse
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--debug", action="store_true")
            args = parser.parse_args()
            torch.autograd.set_detect_anomaly(args.debug)
            with torch.autograd.set_detect_anomaly(mode=args.debug, check_nan=True):
                pass
            """,
        "behind a switch, in a branch or for a whole helper": """
            import os
            import torch
            DEBUG = bool(os.environ.get("DEBUG"))
            if DEBUG:
                torch.autograd.set_detect_anomaly(True)
            def watch():
                torch.autograd.set_detect_anomaly(True)
            if DEBUG:
                watch()
            if not DEBUG:
                pass
            else:
                watch()
                torch.autograd.set_detect_anomaly(True)
            DEBUG and torch.autograd.set_detect_anomaly(True)
            """,
        "a choice between two contexts": """
            import contextlib
            import torch
            def train(x, debug):
                with torch.autograd.detect_anomaly() if debug else contextlib.nullcontext():
                    x.sum().backward()
            """,
        "the step is repeated because it failed": """
            import torch
            def step(loss):
                try:
                    loss.backward()
                except RuntimeError:
                    with torch.autograd.detect_anomaly():
                        loss.backward()
            """,
        "a function that is there to be called when needed": """
            import torch
            def enable_debugging():
                torch.autograd.set_detect_anomaly(True)
            """,
        "a parameter decides": """
            import torch
            def main(detect_anomaly=True):
                torch.autograd.set_detect_anomaly(detect_anomaly)
            """,
        "Lightning off, or decided elsewhere": """
            import lightning as L
            def build(args, **options):
                return [
                    L.Trainer(detect_anomaly=False),
                    L.Trainer(detect_anomaly=args.detect_anomaly),
                    L.Trainer(**options),
                ]
            """,
        "a test of gradients": """
            import torch
            def test_no_anomaly_in_the_loss():
                with torch.autograd.set_detect_anomaly(True):
                    torch.ones(1, requires_grad=True).sum().backward()
            """,
        "a function of one's own": """
            def set_detect_anomaly(mode):
                return mode
            set_detect_anomaly(True)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every place that switches anomaly detection on."""
        found = list(_traced(script))
        gone = [each for each in found if each.edits is not None and each.gone is not None]
        for place in found:
            message = f"`{script.code(place.named)}` {_COST}: {place.advice}"
            fix = _fix(script, place, gone)
            yield Finding(self.code, script.span(place.call), message, fix)


class _Place(Record):
    """One call or argument that switches anomaly detection on.

    `gone` is the code that the fix takes out, for which the imports are judged; None where there
    are no edits.
    """

    call: cst.CSTNode
    named: cst.CSTNode
    advice: str
    edits: Edits | None
    gone: cst.CSTNode | None


def _traced(script: Script) -> Iterator[_Place]:
    for site in script.calls(_SETTER):
        mode = site.argument("mode", 0)
        if mode.equals(True) and not _switched(script, site.node):
            given = site.given("mode", 0)
            literal = given is not None and given.value is mode.node
            yield (
                _of_call(script, site.node)
                if literal
                else _of_constant(script, site.node, mode.node)
            )
    for site in script.calls(_CONTEXT):
        if not _switched(script, site.node):
            yield _of_call(script, site.node)
    for call in script.all(cst.Call):
        if _is_trainer(script.name(call.func)) and not _switched(script, call):
            if script.call(call).argument("detect_anomaly").equals(True):
                yield _of_trainer(script, call)


def _is_trainer(name: str | None) -> bool:
    """Whether a qualified name is Lightning's trainer, by one of its many ways."""
    parts = (name or "").split(".")
    return parts[0] in ("lightning", "pytorch_lightning") and parts[-1] == "Trainer"


def _switched(script: Script, node: cst.CSTNode) -> bool:
    """Whether anomaly detection is there for when it is needed."""
    return script.switched(node, "debug", "anomal", "nan")


def _of_call(script: Script, call: cst.Call) -> _Place:
    """Judge a call that stands as a statement or as a context; it goes as a whole."""
    advice = "take it out, or switch it on by an argument"
    rewrite = script.rewrite
    holder = script.parent(call)
    if isinstance(holder, cst.WithItem):
        statement = script.parent(holder)
        if holder.asname is None and isinstance(statement, cst.With):
            alone = len(statement.items) == 1
            edits = rewrite.unwrap(statement) if alone else rewrite.without_item(statement, holder)
            return _Place(call, call.func, advice, edits, holder)
        return _Place(call, call.func, advice, None, None)
    if isinstance(holder, cst.Arg) and isinstance(entering := script.parent(holder), cst.Call):
        func = entering.func
        if isinstance(func, cst.Attribute) and func.attr.value == "enter_context":
            holder = script.parent(entering)
    line = script.parent(holder) if isinstance(holder, cst.Expr) else None
    if isinstance(line, cst.SimpleStatementLine) and rewrite.stands_alone(line):
        return _Place(call, call.func, advice, rewrite.drop(line), line)
    return _Place(call, call.func, advice, None, None)


def _of_constant(script: Script, call: cst.Call, value: cst.BaseExpression | None) -> _Place:
    """Judge a call whose argument is a name for True: the name is set to False if it alone reads it."""
    given = script.call(call).given("mode", 0)
    name = given.value if given is not None else None
    advice = "pass False"
    if not isinstance(name, cst.Name) or value is None:
        return _Place(call, call.func, advice, None, None)
    reads = script.tree.spelled(name.value)
    made = script.parent(value)
    advice = f"set `{name.value}` to False"
    if len(reads) == 2 and isinstance(made, cst.Assign) and "#" not in script.code(value):
        return _Place(call, call.func, advice, script.rewrite.replace(value, "False"), None)
    return _Place(call, call.func, advice, None, None)


def _of_trainer(script: Script, call: cst.Call) -> _Place:
    advice = "leave `detect_anomaly` out"
    given = script.call(call).given("detect_anomaly")
    if given is None or script.code(given.value) != "True":
        return _Place(call, call.func, advice, None, None)
    edits = script.rewrite.without_argument(call, given)
    return _Place(given, given, advice, edits, None)


def _fix(script: Script, place: _Place, together: Sequence[_Place]) -> Fix | None:
    """Take out a place, with the imports that no place needs when all of them are gone."""
    if place.edits is None:
        return None
    if place.gone is None:
        return Fix.exact(_TITLE, place.edits)
    alone = script.rewrite.without_imports(place.gone)
    if alone is None:
        return None
    if alone:
        return Fix.exact(_TITLE, script.rewrite.united(place.edits, alone))
    if len(together) > _TOGETHER:
        return Fix.exact(_TITLE, place.edits)
    shared = script.rewrite.without_imports(*(each.gone for each in together if each.gone))
    if not shared or place not in together or _nested(script, together):
        return Fix.exact(_TITLE, place.edits)
    return Fix.exact(
        _TITLE, script.rewrite.united(*(each.edits for each in together if each.edits), shared)
    )


def _nested(script: Script, places: Sequence[_Place]) -> bool:
    """Whether one of some `with` statements stands in another."""
    contexts = [
        statement
        for place in places
        if isinstance(statement := script.parent(place.gone or place.call), cst.With)
    ]
    return any(
        one is not other and script.tree.inside(one, other)
        for one in contexts
        for other in contexts
    )
