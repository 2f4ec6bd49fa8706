"""TL302: automatic mixed precision under deprecated names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Script, root_of

_DEVICES: Final = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}
_PARAMETERS: Final = ("enabled", "dtype", "cache_enabled")
_SINCE: Final = {
    "autocast": (1, 12),
    "GradScaler": (2, 3),
    "custom_fwd": (2, 4),
    "custom_bwd": (2, 4),
}
"""The version of torch from which `torch.amp` has each of the names."""
_NAMES: Final = tuple(_SINCE)


class DeprecatedAmpApi(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every use of a deprecated name."""
        imports: dict[int, Edits | None] = {}
        for use in _uses(script):
            device, name = _old(script, use)
            if _new_name_beside(script, use, name):
                continue
            edits = _fix_of_use(script, use) if not _is_value(script, use) else None
            line = _import_of(script, use)
            if line is not None and not _is_value(script, use):
                if id(line) not in imports:
                    imports[id(line)] = _fix_of_import(script, line)
                edits = imports[id(line)]
            new = f'torch.amp.{name}("{device}")'
            if name.startswith("custom"):
                new = f'torch.amp.{name}(device_type="{device}")'
            message = f"`{script.code(_func(use))}` is deprecated since torch 2.4: write `{new}`"
            fix = _fix(script, use, line, edits) if edits else None
            yield Finding(self.code, script.span(use), message, fix)


def _fix(
    script: Script, use: cst.BaseExpression, line: cst.Import | cst.ImportFrom | None, edits: Edits
) -> Fix:
    """Return the fix: exact if every possible torch version has all the new names."""
    title = f"Write `torch.amp.{_old(script, use)[1]}`"
    together = [use]
    if line is not None:
        together = [each for each in _uses(script) if _import_of(script, each) is line]
    newest = max((_old(script, each)[1] for each in together), key=lambda name: _SINCE[name])
    doubt = script.program.target.doubt(_SINCE[newest])
    if doubt:
        return Fix.unsafe(title, edits, because=f"`torch.amp.{newest}` {doubt}")
    return Fix.exact(title, edits)


def _func(use: cst.BaseExpression) -> cst.BaseExpression:
    return use.func if isinstance(use, cst.Call) else use


def _old(script: Script, use: cst.BaseExpression) -> tuple[str, str]:
    """Return the device and the last part of a deprecated name, empty for any other."""
    head, _, last = (script.name(_func(use)) or "").rpartition(".")
    return (_DEVICES[head], last) if head in _DEVICES and last in _NAMES else ("", "")


def _uses(script: Script) -> Iterator[cst.BaseExpression]:
    for call in script.tree.all(cst.Call):
        if _old(script, call)[1]:
            yield call
    for decorator in script.tree.all(cst.Decorator):
        bare = decorator.decorator
        if not isinstance(bare, cst.Call) and _old(script, bare)[1].startswith("custom"):
            yield bare
    for kind in (cst.Name, cst.Attribute):
        yield from (each for each in script.tree.all(kind) if _is_value(script, each))


def _is_value(script: Script, use: cst.BaseExpression) -> bool:
    """Return whether a deprecated name is kept to be called later (`autocast if amp else f`)."""
    holder = script.tree.parent(use)
    return (
        isinstance(use, (cst.Name, cst.Attribute))
        and isinstance(holder, (cst.IfExp, cst.Assign, cst.Return, cst.DictElement))
        and script.scopes.stored(use) is None
        and _old(script, use)[1] in ("autocast", "GradScaler")
    )


def _new_name_beside(script: Script, use: cst.BaseExpression, name: str) -> bool:
    """Return whether the same function also uses the new name, for other versions of torch."""
    home = script.scopes.function(use)
    return home is not None and any(
        script.name(call.func) == f"torch.amp.{name}" for call in script.tree.within(home, cst.Call)
    )


def _fix_of_use(script: Script, use: cst.BaseExpression) -> Edits | None:
    """Rewrite one use with the full name."""
    arguments = _arguments(script, use)
    func = _func(use)
    root = root_of(func)
    if arguments is None or not isinstance(root, cst.Name) or script.name(root) != "torch":
        return None
    return (*script.edits.replace(func, f"{root.value}.amp.{_old(script, use)[1]}"), *arguments)


def _arguments(script: Script, use: cst.BaseExpression) -> Edits | None:
    """Add the device, and pass by keyword what was positional."""
    device, name = _old(script, use)
    if not isinstance(use, cst.Call):
        return script.edits.insert(script.span(use).end, f'(device_type="{device}")')
    if any(arg.star == "*" for arg in use.args):
        return None
    if name.startswith("custom"):
        plain = [arg for arg in use.args if arg.keyword is None]
        return None if plain else script.edits.with_keyword(use, "device_type", f'"{device}"')
    if not use.args:
        return script.edits.insert(script.edits.closing(use), f'"{device}"')
    edits = list(script.edits.insert(script.span(use.args[0]).start, f'"{device}", '))
    plain = [arg for arg in use.args if arg.keyword is None and not arg.star]
    if name == "GradScaler" or not plain:
        return tuple(edits)
    if len(plain) > len(_PARAMETERS):
        return None
    named = [
        edit
        for arg, parameter in zip(plain, _PARAMETERS, strict=False)
        for edit in script.edits.insert(script.span(arg.value).start, f"{parameter}=")
    ]
    first = script.edits.insert(script.span(plain[0].value).start, f'"{device}", {_PARAMETERS[0]}=')
    return (*first, *named[1:])


def _import_of(script: Script, use: cst.BaseExpression) -> cst.Import | cst.ImportFrom | None:
    """Return the import of the old module behind a use, None for a full name."""
    for binding in script.scopes.reaching(root_of(_func(use))):
        node = binding.node
        if isinstance(node, (cst.Import, cst.ImportFrom)) and binding.qualified != "torch":
            return node
    return None


def _fix_of_import(script: Script, line: cst.Import | cst.ImportFrom) -> Edits | None:
    """Rewrite an import of deprecated names and every use of it."""
    edits = _new_import(script, line)
    if edits is None or any(_import_of(script, use) is line and _hidden(use)
                            for use in _uses(script)):  # fmt: skip
        return None
    uses = [use for use in _uses(script) if _import_of(script, use) is line]
    shown = {id(_func(use)) for use in uses}
    names = [alias.evaluated_alias or alias.evaluated_name for alias in _aliases(line)]
    for mention in (each for name in names for each in script.tree.spelled(name)):
        if all(binding.node is not line for binding in script.scopes.reaching(mention)):
            continue
        parent = script.tree.parent(mention)
        whole = parent if isinstance(parent, cst.Attribute) else mention
        if id(whole) not in shown and id(mention) not in shown and not _is_type(script, whole):
            return None
    for use in uses:
        arguments = _arguments(script, use)
        if arguments is None:
            return None
        edits = (*edits, *arguments)
    return edits


def _hidden(use: cst.BaseExpression) -> bool:
    """Return whether a use of the import is neither one name nor one attribute."""
    func = _func(use)
    return isinstance(func, cst.Attribute) and isinstance(func.value, cst.Attribute)


def _is_type(script: Script, mention: cst.CSTNode) -> bool:
    """Return whether a use is an annotation or a class in a comparison."""
    if isinstance(script.tree.parent(mention), cst.Annotation):
        return True
    outer = script.tree.taker(mention)
    return isinstance(outer, cst.Call) and script.name(outer.func) == "builtins.isinstance"


def _aliases(line: cst.Import | cst.ImportFrom) -> Sequence[cst.ImportAlias]:
    return () if isinstance(line.names, cst.ImportStar) else line.names


def _new_import(script: Script, line: cst.Import | cst.ImportFrom) -> Edits | None:
    """Replace the module of an import, None if it imports other names as well."""
    aliases = _aliases(line)
    if isinstance(line, cst.Import):
        alias = aliases[0]
        if len(aliases) == 1 and alias.asname and alias.evaluated_name in _DEVICES:
            return script.edits.replace(alias.name, "torch.amp")
        return None
    module = script.code(line.module) if line.module is not None else ""
    names = [alias.evaluated_name for alias in aliases]
    if module in ("torch.cuda", "torch.cpu") and names == ["amp"] and line.module is not None:
        return script.edits.replace(line.module, "torch")
    if line.module is not None and module in _DEVICES and set(names) <= set(_NAMES):
        return script.edits.replace(line.module, "torch.amp")
    return None
