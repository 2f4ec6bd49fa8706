"""TL110: every worker of a loader runs OpenCV with as many threads as there are cores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

import libcst as cst

from torchlint.api import (
    Finding,
    Fix,
    How,
    ItemCode,
    Loader,
    Note,
    Per,
    Rule,
    Script,
    State,
    receiver_of,
)

_WORKS: Final = frozenset(
    f"cv2.{name}"
    for name in (
        "resize warpAffine warpPerspective remap rotate flip GaussianBlur blur medianBlur "
        "bilateralFilter boxFilter filter2D cvtColor imdecode copyMakeBorder normalize equalizeHist"
        " addWeighted dilate erode morphologyEx Canny Sobel undistort fastNlMeansDenoising"
    ).split()
)
"""Functions that OpenCV runs in several threads, or that stand for such work."""
_LIMIT: Final = "setNumThreads"
_Statement = cst.BaseStatement | cst.BaseSmallStatement


class OpencvThreadsInWorkers(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the first use of OpenCV in each module whose items workers load."""
        if script.whole.functions.mentions(_LIMIT):
            return
        said: set[int] = set()
        for code in script.loaders.items.all():
            call = _work(script, code)
            loader = _loader(script, code) if call is not None else None
            if call is None or loader is None:
                continue
            module = script.tree.module_of(call)
            if id(module) in said:
                continue
            said.add(id(module))
            message = (
                f"every worker runs `{script.code(call.func)}` with as many threads as the machine "
                "has cores; call `cv2.setNumThreads(0)` once, where the dataset is defined"
            )
            notes = (Note(script.span(loader.node), "the loader with workers"),)
            fix = _fix(script, call)
            yield Finding(self.code, script.span(call), message, fix, notes)


def _work(script: Script, code: ItemCode) -> cst.Call | None:
    """Return the first call with which an item or a batch is processed by OpenCV."""
    if code.per is Per.STREAM and not code.owner:
        return None
    for call in script.functions.run_in(code.node):
        if script.name(call.func) in _WORKS:
            return call
    return None


def _loader(script: Script, code: ItemCode) -> Loader | None:
    """Return a loader that has workers and may read the items."""
    for loader in script.loaders:
        workers = loader.workers
        literal = workers.literal if workers.is_literal else None
        if workers.state is State.DECIDED or (isinstance(literal, int) and literal > 0):
            if code.owner is None or _may_read(script, loader.dataset, code.owner):
                return loader
    return None


def _may_read(script: Script, given: cst.BaseExpression | None, owner: cst.ClassDef) -> bool:
    """Return whether a dataset may be an instance of a class."""
    if given is None:
        return True
    known = script.functions.instance_of(given)
    return known is None or known is owner or owner.name.value in script.functions.bases(known)


def _fix(script: Script, call: cst.Call) -> Fix | None:
    """Return a fix that limits the threads below the import, None if it is not at the top."""
    module = receiver_of(call)
    if not isinstance(module, cst.Name) or not script.tree.is_own(call):
        return None
    lines = [
        script.tree.statement(each.node)
        for each in script.scopes.reaching(module)
        if each.how is How.IMPORT
    ]
    if len(lines) != 1 or script.scopes.function(lines[0]) is not None or script.source.is_notebook:
        return None
    limit = f"{module.value}.setNumThreads(0)"
    body = script.tree.module.body
    if lines[0] in body:
        imports = [lines[0], *takewhile(_is_import, body[body.index(lines[0]) + 1 :])]
        edits = script.edits.after(imports[-1], "", limit)
    else:
        edits = script.edits.after(lines[0], limit)
    return Fix.exact("Let OpenCV use no threads of its own", edits)


def _is_import(line: _Statement) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(
        line.body[0], (cst.Import, cst.ImportFrom)
    )
