"""TL806: functions and arguments that torch warns about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Note, Rule, Safety, Script
from torchlint_rules.shared.renaming import renamed
from torchlint_rules.tl806_deprecated_api.deprecations import (
    FACTORS_LAST,
    LOSSES,
    NAMES,
    NEEDED,
    OVERLOADS,
    Deprecated,
)

_PINNED_FOR: Final = "pin_memory_device"
_FLAGS: Final = ("size_average", "reduce")
_OTHER_ORDER: Final = "the two arguments are computed in the other order"


class DeprecatedApi(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every call of a deprecated function, and every deprecated argument."""
        doubtful: dict[str, list[Finding]] = {}
        for finding in self._found(script):
            if finding.fix is not None and finding.fix.safety is not Safety.UNSAFE:
                yield finding
            else:
                doubtful.setdefault(finding.message, []).append(finding)
        for found in doubtful.values():
            fixes = [each.fix for each in found if each.fix is not None]
            notes = tuple(Note(each.span, "and here") for each in found[1:])
            fix = (Fix.of_several(fixes) or fixes[0]) if fixes else None
            yield replace(found[0], fix=fix, notes=notes)

    def _found(self, script: Script) -> Iterator[Finding]:
        for site in script.calls.of(*NAMES):
            if not _is_at_home(script, str(site.name)):
                yield from self._named(script, site, NAMES[str(site.name)])
        for site in script.calls.of(*NEEDED):
            yield from self._needed(script, site)
        for site in script.calls.of(*LOSSES):
            yield from self._flags(script, site)
        for loader in script.loaders:
            yield from self._pinned(script, loader)
        overloads = OVERLOADS if script.program.target.has(FACTORS_LAST) else ()
        for site in script.calls.of_methods(*overloads):
            yield from self._overload(script, site)

    def _named(self, script: Script, site: CallSite, known: Deprecated) -> Iterator[Finding]:
        if not script.program.target.has(known.since) or _also_new(script, site.node, known.new):
            return
        call, old = site.node, script.code(site.node.func)
        place = script.span(call.func)
        if known.report:
            yield Finding(self.code, place, f"`{old}` is deprecated: {known.new}")
            return
        message = f"`{old}` is deprecated: write `{known.new}`"
        edits = None
        fits = not known.only or (len(call.args) == 1 and not site.has_splat)
        if fits and not script.tree.mentions(*known.breaks):
            edits = renamed(script, call, known.new, known.added)
        title = f"Write `{known.new.rpartition('.')[2]}`"
        yield Finding(self.code, place, message, _fix(script, title, edits, known))

    def _needed(self, script: Script, site: CallSite) -> Iterator[Finding]:
        name, position, default, why = NEEDED[str(site.name)]
        call = site.node
        if site.given(name, position) is not None or (site.has_splat and not default):
            return
        if any(arg.star == "**" for arg in call.args) or _passed_beside(script, site, name):
            return
        message = f"`{script.code(call.func)}` without `{name}` is deprecated: {why}"
        fix = None
        if default:
            edits = script.edits.with_keyword(call, name, default)
            fix = Fix.exact(f"Pass `{name}={default}`", edits)
        yield Finding(self.code, script.span(call.func), message, fix)

    def _flags(self, script: Script, site: CallSite) -> Iterator[Finding]:
        """Yield the flags that a loss is given in place of a word for its reduction."""
        given = [arg for flag in _FLAGS if (arg := site.given(flag)) is not None]
        if not given or site.has_splat:
            return
        word = script.values.reductions.word(site.node)
        said = " and ".join(f"`{script.code(arg)}`" for arg in given)
        instead = f'`reduction="{word}"`' if word else "`reduction=`"
        message = f"{said} is deprecated: write {instead}"
        fix = None
        if word and site.given("reduction") is None:
            edits = _reduced(script, site.node, given, word)
            fix = Fix.exact(f"Write {instead}", edits)
        yield Finding(self.code, script.span(given[0]), message, fix)

    def _pinned(self, script: Script, site: CallSite) -> Iterator[Finding]:
        given = site.given(_PINNED_FOR)
        if (
            given is None
            or not script.program.target.has((2, 9))
            or site.argument(_PINNED_FOR).equals("")
        ):
            return
        message = f"`{_PINNED_FOR}` is ignored since torch 2.9, which pins for the device in use"
        edits, title = (script.edits.without_argument(site.node, given), f"Remove `{_PINNED_FOR}`")
        doubt = script.program.target.doubt((2, 9))
        if doubt and not site.argument(_PINNED_FOR).equals("cuda"):
            fix = Fix.unsafe(title, edits, because=f"that {doubt}")
        else:
            fix = Fix.exact(title, edits)
        yield Finding(self.code, script.span(given), message, fix)

    def _overload(self, script: Script, site: CallSite) -> Iterator[Finding]:
        """Yield an in-place operation whose factor stands before its tensors."""
        call, method = site.node, site.method
        length, keyword = OVERLOADS[method]
        if script.name(call.func) is not None or len(call.args) != length:
            return
        if any(arg.keyword or arg.star for arg in call.args):
            return
        factor, *tensors = (script.tree.argument(arg.value) for arg in call.args)
        new = f"{', '.join(tensors)}, {keyword}={factor}"
        message = f"`{method}` with its factor first is deprecated: write `{method}({new})`"
        edits = _moved(script, call, keyword)
        fix = None
        if edits is not None:
            computed = [any(script.tree.within(arg, cst.Call)) for arg in call.args]
            title = f"Pass `{keyword}` by its name"
            fix = Fix.exact(title, edits)
            if computed[0] and any(computed[1:]):
                fix = Fix.unsafe(title, edits, because=_OTHER_ORDER)
        yield Finding(self.code, script.span(call), message, fix)


def _also_new(script: Script, call: cst.Call, new: str) -> bool:
    """Return whether the same function calls the new name as well, for other versions of torch."""
    home = script.scopes.function(call)
    return home is not None and any(
        script.name(each.func) == new for each in script.tree.within(home, cst.Call)
    )


def _passed_beside(script: Script, site: CallSite, keyword: str) -> bool:
    """Return whether the same function passes an argument in another call of a name."""
    home = script.scopes.function(site.node)
    return home is not None and any(
        script.name(each.func) == site.name and script.calls.at(each).given(keyword) is not None
        for each in script.tree.within(home, cst.Call)
    )


def _fix(script: Script, title: str, edits: Edits | None, known: Deprecated) -> Fix | None:
    if edits is None:
        return None
    doubt = script.program.target.doubt(known.since)
    because = known.unlike or (f"`{known.new}` {doubt}" if doubt else "")
    return Fix.unsafe(title, edits, because=because) if because else Fix.exact(title, edits)


def _reduced(script: Script, call: cst.Call, given: list[cst.Arg], word: str) -> Edits:
    """Write the word for the reduction in place of the flags."""
    first, *others = given
    edits: Edits
    if word == "mean" and not others:
        edits = script.edits.without_argument(call, first)
    else:
        edits = script.edits.replace(first, f'reduction="{word}"')
    for arg in others:
        edits = (*edits, *script.edits.without_argument(call, arg))
    return edits


def _moved(script: Script, call: cst.Call, keyword: str) -> Edits | None:
    """Move the first argument to the end, under its keyword; None if comments are between."""
    spans = [script.span(arg.value) for arg in call.args]
    text = script.tree.source.text[spans[0].start : spans[-1].end]
    if "#" in text:
        return None
    return (
        *script.edits.delete(spans[0].start, spans[1].start),
        *script.edits.insert(
            spans[-1].end, f", {keyword}={script.tree.argument(call.args[0].value)}"
        ),
    )


def _is_at_home(script: Script, name: str) -> bool:
    """Return whether the file is of the package that defines a name (`torch/ao/nn/x.py`)."""
    package = "/".join(name.split(".")[:2])
    return f"/{package}/" in f"/{script.source.path}"
