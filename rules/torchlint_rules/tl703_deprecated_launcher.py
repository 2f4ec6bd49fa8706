"""TL703: code that only works with the deprecated `torch.distributed.launch`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Rule, Script, Span

_UNDERSCORE: Final = "--local_rank"
_DASH: Final = "--local-rank"
_KEPT: Final = "local_rank"
_VARIABLE: Final = "LOCAL_RANK"
_DEEPSPEED: Final = re.compile("deepspeed")
_LAUNCH: Final = "torch.distributed.launch"
_COMMAND: Final = re.compile(r"-m\s+(torch\.distributed\.launch)(?![\w.])")
_TITLE: Final = "Read LOCAL_RANK from the environment"
_TORCHRUN: Final = "a run that torchrun starts goes by its rank from then on"


class DeprecatedLauncher(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag arguments and commands for the deprecated launcher."""
        yield from self._commands(script)
        if script.program.vocabulary.has_lowered(_DEEPSPEED) or _is_known(script):
            return
        for site in script.calls.of_methods("add_argument"):
            call = site.node
            option = next((o for o in _options(call) if _spelled(o) in (_UNDERSCORE, _DASH)), None)
            tests = (script.code(test).lower() for test in script.tree.tests_around(call))
            if option is not None and not any("version" in test for test in tests):
                edits = _edits(script, site)
                fix = Fix.unsafe(_TITLE, edits, because=_TORCHRUN) if edits else None
                message = _message(script, site, _spelled(option))
                yield Finding(self.code, script.span(option), message, fix)

    def _commands(self, script: Script) -> Iterator[Finding]:
        texts: list[cst.SimpleString | cst.FormattedStringText]
        texts = [*script.tree.all(cst.SimpleString), *script.tree.all(cst.FormattedStringText)]
        for text in texts:
            at = _command(script, text)
            if at is not None:
                start = script.span(text).start + at
                yield Finding(
                    self.code,
                    Span(start, start + len(_LAUNCH)),
                    f"`python -m {_LAUNCH}` is deprecated: start it by `torchrun`, and read "
                    f"{_VARIABLE} from the environment",
                )


def _command(script: Script, text: cst.SimpleString | cst.FormattedStringText) -> int | None:
    """Return the position at which a text uses the launcher as a command, None if it does not."""
    if _LAUNCH not in text.value or _is_comment(script, text):
        return None
    found = _COMMAND.search(script.code(text))
    if found is not None:
        return found.start(1)
    element = script.tree.parent(text)
    command = script.tree.parent(element) if isinstance(element, cst.Element) else None
    if not isinstance(command, cst.List) or not isinstance(element, cst.Element):
        return None
    if not isinstance(text, cst.SimpleString) or _spelled(text) != _LAUNCH:
        return None
    at = list(command.elements).index(element)
    before = command.elements[at - 1].value if at else None
    says = isinstance(before, cst.SimpleString) and _spelled(before) == "-m"
    return script.code(text).index(_LAUNCH) if says else None


def _is_comment(script: Script, text: cst.CSTNode) -> bool:
    """Return whether a string is a statement in a branch or a loop, and so a comment."""
    line = script.tree.parent(text)
    block = script.tree.parent(line) if isinstance(line, cst.Expr) else None
    if isinstance(block, cst.SimpleStatementLine):
        block = script.tree.parent(block)
    owner = script.tree.parent(block)
    return owner is not None and not isinstance(owner, (cst.FunctionDef, cst.ClassDef))


def _is_known(script: Script) -> bool:
    """Return whether the file reads the rank from the environment, or sets it by itself."""
    if any(_spelled(text) == _VARIABLE for text in script.tree.all(cst.SimpleString)):
        return True
    return any(
        isinstance(each.target, cst.Attribute)
        and each.target.attr.value == _KEPT
        and not any(
            part.attr.value == _KEPT for part in script.tree.within(line.value, cst.Attribute)
        )
        for line in script.tree.all(cst.Assign)
        for each in line.targets
    )


def _is_read(script: Script) -> bool:
    """Return whether code reads the rank from something else than an object of its own class."""
    read = (each for each in script.functions.attributes(_KEPT) if script.scopes.reads(each))
    return any(script.functions.instance_of(each.value) is None for each in read)


def _spelled(text: cst.SimpleString) -> str:
    return text.value.strip("'\"")


def _options(call: cst.Call) -> list[cst.SimpleString]:
    return [
        arg.value
        for arg in call.args
        if arg.keyword is None and isinstance(arg.value, cst.SimpleString)
    ]


def _message(script: Script, site: CallSite, option: str) -> str:
    default = site.given("default")
    then = ""
    if site.argument("required").equals(True):
        then = ": under torchrun the script does not start"
    elif _is_read(script):
        kept = script.code(default.value) if default else "None"
        then = f": under torchrun every process keeps {kept}"
    elif not _has(site.node, _DASH) and _is_strict(script):
        then = f", and since torch 2.0 it writes `{_DASH}`, which is refused here"
    return (
        f"`{option}` is passed by `{_LAUNCH}` alone, which is deprecated{then}; "
        f"read {_VARIABLE} from the environment"
    )


def _is_strict(script: Script) -> bool:
    """Return whether the parsers of the file reject unknown arguments."""
    lenient = next(script.calls.of_methods("parse_known_args"), None) is not None
    return not lenient or next(script.calls.of_methods("parse_args"), None) is not None


def _has(call: cst.Call, option: str) -> bool:
    return any(_spelled(each) == option for each in _options(call))


def _edits(script: Script, site: CallSite) -> Edits | None:
    """Read the default from the environment, accept both spellings; None if that may be wrong."""
    default, required = site.given("default"), site.given("required")
    imported = script.edits.importing("os", at=site.node)
    if site.has_splat or imported is None:
        return None
    word, imports = imported
    read = f'{word}.environ.get("{_VARIABLE}"'
    if default is not None:
        value = _from_environment(site, read)
        if value is None:
            return None
        edits = script.edits.replace(default.value, value)
    elif required is not None and site.argument("required").equals(True):
        edits = script.edits.replace(required, f"default=int({read}, 0))")
    else:
        edits = script.edits.with_keyword(site.node, "default", f"{read})")
    return (*imports, *_spellings(script, site.node), *edits)


def _from_environment(site: CallSite, read: str) -> str | None:
    """Return a default that the environment may override, None if it is no literal."""
    default = site.given("default")
    value = site.argument("default")
    if default is None or value.node is not default.value or not value.is_literal:
        return None
    literal = value.literal
    if literal is None:
        return f"{read})"
    if isinstance(literal, str):
        return f"{read}, {site.values.tree.code(default.value)})"
    if type(literal) is int:
        return f"int({read}, {site.values.tree.code(default.value)}))"
    return None


def _spellings(script: Script, call: cst.Call) -> Edits:
    """Add the option with a dash, which the launcher of torch 2 passes."""
    if _has(call, _DASH):
        return ()
    text = next(each for each in _options(call) if _spelled(each) == _UNDERSCORE)
    quoted = text.value.replace(_UNDERSCORE, _DASH)
    return script.edits.insert(script.span(text).end, f", {quoted}")
