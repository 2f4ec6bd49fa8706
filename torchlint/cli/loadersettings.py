"""Reading the settings of a `DataLoader` call in the source, and changing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import libcst as cst

from torchlint.engine.parsing import UnparsableError, compile_problem, parse_script, syntax_tree
from torchlint.engine.writing import write_atomic
from torchlint.harness.pace import LoaderSeen, Place
from torchlint.harness.tuning.report import Decision, Knob, LoaderSite, TuningReport, Value
from torchlint.semantic.edits.rewrite import Edits
from torchlint.semantic.scope.target import Target
from torchlint.semantic.script import Script
from torchlint.semantic.syntax.methods import last_word
from torchlint.source import Source, SourceError

_POSITIONS: Final[Mapping[str, int | None]] = {
    "num_workers": 5,
    "pin_memory": 7,
    "batch_size": 1,
    "prefetch_factor": None,
    "persistent_workers": None,
}
_SETTINGS: Final[tuple[Knob, ...]] = ("num_workers", "prefetch_factor", "pin_memory", "batch_size")
_DEPTH: Final = 5
_UNLIKELY: Final = 7919
_OPTIONS: Final = ("add_argument", "option", "add_option", "Option")
"""Methods that define a command-line option."""


class LoaderCall:
    """The call that creates the loader, in its original file."""

    def __init__(self, source: Source, script: Script, call: cst.Call, loader: LoaderSeen) -> None:
        self.source = source
        self.loader = loader
        self.line = source.position(script.span(call).start).row
        self._script = script
        self._call = call
        self._ordinal = script.tree.all(cst.Call).index(call)

    @property
    def path(self) -> str:
        """The file that contains the call."""
        return self.source.path

    def site(self) -> LoaderSite:
        """Return the call as reported, with the places that decide settings instead of the call."""
        decided = {name: found for name in _SETTINGS if (found := self.decided(name)) is not None}
        label = self._script.loaders.at(self._call).label
        return LoaderSite(self.path, self.line, label, decided)

    def decided(self, name: str) -> Decision | None:
        """Return the place that decides a setting, None if the call itself does or can."""
        script, call = self._script, self._call
        arg = script.calls.at(call).given(name, _POSITIONS[name])
        if arg is None:
            splat = next((each for each in call.args if each.star), None)
            return None if splat is None else self._at(splat)
        literal = _literal(script, arg)
        if literal is not None:
            return None if literal is arg.value or self._follows(name) else self._at(literal)
        found = _option_of(script, arg.value, _DEPTH)
        if found is None:
            return self._at(arg.value)
        option, made = found
        return replace(self._at(made), option=option)

    def fixed(self) -> Mapping[Knob, str]:
        """Return the settings that cannot be changed in the call, each with the reason."""
        return {name: reason for name in _SETTINGS if (reason := self._refusal(name))}

    def _refusal(self, name: Knob) -> str:
        try:
            self.texts({name: 1})
        except ValueError as error:
            return str(error)
        return ""

    def texts(self, values: Mapping[str, Value]) -> Mapping[str, str]:
        """Return changed texts by file, to run in place of the originals; raises `ValueError`."""
        return {self.path: self.with_values(self._together(values)).text}

    def write(self, report: TuningReport) -> tuple[Knob, ...]:
        """Write the recommended values and return the settings written; raises `WriteError`."""
        decided = self.site().decided
        changing: dict[Knob, Value] = {
            each.knob: each.choice
            for each in report.settings
            if each.changes and each.knob != "batch_size" and each.knob not in decided
        }
        if "num_workers" in decided and report.setting("num_workers").changes:
            changing.pop("prefetch_factor", None)
        if changing:
            after = self.with_values(self._together(changing))
            write_atomic(Path(self.path), after, self.source.to_bytes())
        return tuple(changing)

    def _together(self, values: Mapping[Any, Value]) -> dict[str, Value]:
        """Add settings that must change as well: with 0 workers torch rejects worker settings."""
        settings = dict(values)
        if settings.get("num_workers") == 0:
            call = self._script.calls.at(self._call)
            if self.loader.persistent_workers:
                settings["persistent_workers"] = False
            if call.has_splat or call.given("prefetch_factor") is not None:
                settings["prefetch_factor"] = None
        return settings

    def with_values(self, values: Mapping[str, Value]) -> Source:
        """Return the source with settings changed, wherever their values come from.

        Raises `ValueError` if one cannot be changed.
        """
        source = self.source
        for name, value in values.items():
            script = _parsed(source)
            call = script.tree.all(cst.Call)[self._ordinal]
            source = source.edited(self._edits(script, call, name, repr(value)))
        if (problem := compile_problem(source)) is not None:
            raise ValueError(problem.reason)
        return source

    def _follows(self, name: str) -> bool:
        """Return whether changing the literal in the source changes the setting."""
        changed = self.source.edited(self._edits(self._script, self._call, name, str(_UNLIKELY)))
        script = _parsed(changed)
        call = script.tree.all(cst.Call)[self._ordinal]
        return script.calls.at(call).argument(name, _POSITIONS[name]).equals(_UNLIKELY)

    def _edits(self, script: Script, call: cst.Call, name: str, text: str) -> Edits:
        arg = script.calls.at(call).given(name, _POSITIONS[name])
        if arg is not None:
            return script.edits.replace(_literal(script, arg) or arg.value, text)
        if any(each.star == "*" for each in call.args):
            raise ValueError("the call passes settings by `*args`")
        splat = next((each for each in call.args if each.star), None)
        if splat is None:
            return script.edits.with_keyword(call, name, text)
        code = script.code(splat.value)
        return script.edits.replace(splat.value, f'{{**{code}, "{name}": {text}}}')

    def _at(self, node: cst.CSTNode) -> Decision:
        row = self.source.position(self._script.span(node).start).row
        return Decision(row, " ".join(self._script.code(node).split()))


def find_call(made: Iterable[LoaderSeen]) -> LoaderCall | None:
    """Return the project's call that creates the first of these loaders, None if there is none."""
    for loader in made:
        if loader.place is not None and (found := _call_at(loader, loader.place)) is not None:
            return found
    return None


def _call_at(loader: LoaderSeen, place: Place) -> LoaderCall | None:
    try:
        source = Source.from_bytes(Path(place.file).read_bytes(), place.file)
        script = _parsed(source)
    except (OSError, SourceError, UnparsableError):
        return None
    for call in script.tree.all(cst.Call):
        if _ends_at(source, script, call, place) and _makes_a_loader(script, call):
            return LoaderCall(source, script, call, loader)
    return None


def _ends_at(source: Source, script: Script, call: cst.Call, place: Place) -> bool:
    if not place.end_line:
        return source.position(script.span(call).start).row == place.line
    line = source.line(place.end_line)
    column = len(line.encode()[: place.end_column].decode(errors="ignore"))
    return script.edits.closing(call) + 1 == source.line_starts[place.end_line - 1] + column


def _makes_a_loader(script: Script, call: cst.Call) -> bool:
    """Return whether a call creates a loader, judged by its name or its arguments."""
    name = (script.name(call.func) or script.code(call.func)).rpartition(".")[2]
    given = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    of_super = "super()" in script.code(call.func)
    return name.endswith("Loader") or of_super or not given.isdisjoint(_POSITIONS)


def _parsed(source: Source) -> Script:
    return parse_script(source, Target(), syntax_tree(source))


def _literal(script: Script, arg: cst.Arg) -> cst.BaseExpression | None:
    value = script.values.value_of(arg.value)
    return value.node if value.is_literal else None


def _option_of(script: Script, node: cst.BaseExpression, depth: int) -> tuple[str, cst.Call] | None:
    """Return the command-line option that a value comes from, and the call that defines it."""
    names = [node] if isinstance(node, cst.Name | cst.Attribute) else _names_in(script, node)
    for name in names:
        last = last_word(name)
        found = next((each for each in _options(script) if each[0] == last), None)
        if found is not None:
            return found[1], found[2]
        if isinstance(name, cst.Name) and depth:
            for value in _sources(script, name):
                if (found_there := _option_of(script, value, depth - 1)) is not None:
                    return found_there
    return None


def _names_in(script: Script, node: cst.BaseExpression) -> list[cst.Name | cst.Attribute]:
    attributes = list(script.tree.within(node, cst.Attribute))
    inner = {id(name) for each in attributes for name in script.tree.within(each, cst.Name)}
    return [
        *attributes,
        *(name for name in script.tree.within(node, cst.Name) if id(name) not in inner),
    ]


def _sources(script: Script, name: cst.Name) -> Iterator[cst.BaseExpression]:
    for binding in script.scopes.reaching(name):
        if isinstance(binding.node, cst.Param):
            yield from script.functions.given(binding.node)
        elif binding.value is not None:
            yield binding.value


def _options(script: Script) -> Iterator[tuple[str, str, cst.Call]]:
    """Yield each command-line option: its name in the code, its flag, and its call."""
    for call in script.tree.all(cst.Call):
        if script.code(call.func).rpartition(".")[2] not in _OPTIONS:
            continue
        words = [
            value
            for arg in call.args
            if arg.keyword is None
            and isinstance(value := script.values.value_of(arg.value).literal, str)
        ]
        long = next((word for word in words if word.startswith("--")), words[0] if words else "")
        given = script.calls.at(call).argument("dest").literal
        dest = given if isinstance(given, str) else long.lstrip("-").replace("-", "_")
        if dest:
            yield dest, long, call
