"""The statement that wraps a network in `DataParallel`, or the line that prevents its rewrite."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Script
from torchlint_rules.shared.rebuilding import moved

DATA_PARALLEL: Final = "torch.nn.DataParallel"
_ALL_GPUS: Final = (
    "None", "range(torch.cuda.device_count())", "list(range(torch.cuda.device_count()))",
)  # fmt: skip


class ObstacleError(Exception):
    """The first line of a script that the rewrite does not support."""

    def __init__(self, node: cst.CSTNode, why: str) -> None:
        super().__init__(why)
        self.node = node
        self.why = why

    def told(self, script: Script) -> str:
        """Return the line, with its file if that is another one, and the reason."""
        place = script.tree.place(self.node)
        line = f"line {place.row}" if script.tree.is_own(self.node) else f"{place}"
        code = script.code(self.node).strip().splitlines()[0]
        short = code if len(code) <= 48 else f"{code[:45]}..."
        return f"{line}, `{short}`: {self.why}"


class Wrap(NamedTuple):
    """The statement that wraps a network: `model = nn.DataParallel(model).cuda()`."""

    call: cst.Call
    whole: cst.BaseExpression
    """The call with the `.cuda()` or `.to(device)` chained to it."""
    target: cst.Name
    statement: cst.SimpleStatementLine
    condition: cst.If | None
    """The `if` that wraps the network only where there are several GPUs."""

    @property
    def source(self) -> cst.BaseExpression:
        """The wrapped network."""
        return self.call.args[0].value


def wraps(script: Script) -> list[cst.Call]:
    """Return the calls that wrap a network in `DataParallel`."""
    return [site.node for site in script.calls.of(DATA_PARALLEL)]


def wrap_of(script: Script, call: cst.Call) -> Wrap:
    """Return the statement that wraps a network; raises `ObstacleError`."""
    others = [other for other in wraps(script) if other is not call]
    if others:
        raise ObstacleError(others[0], "several networks are wrapped")
    if not call.args or call.args[0].star or call.args[0].keyword is not None:
        raise ObstacleError(call, "what is wrapped is not spelled out")
    _refuse_device_ids(script, call)
    whole = moved(script, call)
    target, statement = assigned(script, call, whole, "the wrapped network")
    return Wrap(call, whole, target, statement, _condition(script, call, statement))


def _condition(script: Script, call: cst.Call, statement: cst.CSTNode) -> cst.If | None:
    """Return the one `if` that decides whether to wrap, None if nothing does."""
    tree, found = script.tree, None
    entry = script.program.entry(call)
    for outer in tree.ancestors(statement):
        if isinstance(outer, cst.FunctionDef) or (entry and outer is entry.block):
            break
        if isinstance(outer, (cst.For, cst.While, cst.Try, cst.With)):
            raise ObstacleError(call, "it stands in a loop, class, `try` or `with`")
        if isinstance(outer, (cst.If, cst.Else)):
            if found is not None or isinstance(outer, cst.Else):
                raise ObstacleError(call, "several conditions decide whether to wrap")
            found = outer
    if found is not None and isinstance(tree.parent(found), cst.If):
        raise ObstacleError(call, "several conditions decide whether to wrap")
    return found


def assigned(
    script: Script, call: cst.Call, value: cst.BaseExpression, what: str
) -> tuple[cst.Name, cst.SimpleStatementLine]:
    """Return the only name that a value is assigned to, and the line that does it."""
    assign, line = script.tree.parent(value), script.tree.statement(call)
    if (
        not isinstance(assign, cst.Assign)
        or assign.value is not value
        or len(assign.targets) != 1
        or not isinstance(assign.targets[0].target, cst.Name)
        or not isinstance(line, cst.SimpleStatementLine)
        or not script.edits.stands_alone(line)
    ):
        raise ObstacleError(call, f"{what} is not assigned to a plain name")
    return assign.targets[0].target, line


def _refuse_device_ids(script: Script, call: cst.Call) -> None:
    site = script.calls.at(call)
    if site.has_splat:
        raise ObstacleError(call, "its arguments are not spelled out")
    for name in ("output_device", "dim"):
        given = site.given(name)
        if given is not None:
            raise ObstacleError(given, f"`{name}` has no counterpart")
    ids = site.given("device_ids")
    if ids and script.values.code_of(ids.value).replace(" ", "") not in _ALL_GPUS:
        raise ObstacleError(ids, "GPUs are chosen by number")
