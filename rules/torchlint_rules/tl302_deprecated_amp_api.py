"""TL302: automatic mixed precision by its old names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Safety, Script

_DEVICES: Final = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}
_PARAMETERS: Final = ("enabled", "dtype", "cache_enabled")
_NAMES: Final = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")


class DeprecatedAmpApi(Rule):
    """
    ## What it does
    Flags `autocast`, `GradScaler`, `custom_fwd` and `custom_bwd` of `torch.cuda.amp` and
    `torch.cpu.amp`, however they were imported, and rewrites each use together with the import.

    ## Why it is slow
    It is not: it warns at every construction, and will be removed. The warning's own advice is a
    trap: the order of the arguments changed, so `autocast(use_amp)` must become
    `autocast("cuda", enabled=use_amp)`; `autocast("cuda", use_amp)` fails when it is entered.

    ## When not to
    Keep the old names while you support torch before 2.4, which has no
    `torch.amp.custom_fwd`; set `target-torch` and the rule is off.

    ## Fix safety
    Exact: the new names run the same code with the same defaults. There is no fix where a name is
    handed on as a value, for then this file does not show how it is called.
    """

    code = "TL302"
    name = "deprecated-amp-api"
    summary = "mixed precision by a name that is deprecated since torch 2.4"
    impact = "low"
    safety = Safety.EXACT
    articles = ("S0", "S1", "S3.4")
    needs = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
    since = (2, 4)

    invalid = {
        "with the full name": """
              import torch
            - with torch.cuda.amp.autocast():
            + with torch.amp.autocast("cuda"):
                  pass
            """,
        "the flag is no longer the first argument": """
              import torch
              use_amp = True
            - with torch.cuda.amp.autocast(use_amp):
            + with torch.amp.autocast("cuda", enabled=use_amp):
                  pass
            """,
        "two arguments by position": """
              import torch
            - context = torch.cuda.amp.autocast(True, torch.bfloat16)
            + context = torch.amp.autocast("cuda", enabled=True, dtype=torch.bfloat16)
            """,
        "keywords stay": """
              import torch
              fp16 = True
            - scaler = torch.cuda.amp.GradScaler(2.0**14, enabled=fp16)
            + scaler = torch.amp.GradScaler("cuda", 2.0**14, enabled=fp16)
            """,
        "imported by name, one import for both": """
            - from torch.cuda.amp import autocast, GradScaler  # mixed precision
            + from torch.amp import autocast, GradScaler  # mixed precision

            - scaler = GradScaler()
            + scaler = GradScaler("cuda")
            - with autocast(enabled=True):
            + with autocast("cuda", enabled=True):
                  pass
            """,
        "under a name of its own": """
            - from torch.cuda.amp import autocast as mixed
            + from torch.amp import autocast as mixed
            - with mixed():
            + with mixed("cuda"):
                  pass
            """,
        "the module imported from torch.cuda": """
            - from torch.cuda import amp
            + from torch import amp
            - scaler = amp.GradScaler()
            + scaler = amp.GradScaler("cuda")
            - with amp.autocast():
            + with amp.autocast("cuda"):
                  pass
            """,
        "the module under an alias": """
            - import torch.cuda.amp as amp
            + import torch.amp as amp
            - scaler = amp.GradScaler()
            + scaler = amp.GradScaler("cuda")
            """,
        "as a decorator": """
              import torch
            - @torch.cuda.amp.autocast()
            + @torch.amp.autocast("cuda")
              def forward(x):
                  return x @ x
            """,
        "a custom function, bare and called": """
              import torch
              from torch.autograd import Function
              class Cube(Function):
                  @staticmethod
            -     @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
            +     @torch.amp.custom_fwd(cast_inputs=torch.float32, device_type="cuda")
                  def forward(ctx, x):
                      ctx.save_for_backward(x)
                      return x**3
                  @staticmethod
            -     @torch.cuda.amp.custom_bwd
            +     @torch.amp.custom_bwd(device_type="cuda")
                  def backward(ctx, grad):
                      (x,) = ctx.saved_tensors
                      return 3 * x**2 * grad
            """,
        "on the CPU": """
              import torch
            - with torch.cpu.amp.autocast(dtype=torch.bfloat16):
            + with torch.amp.autocast("cpu", dtype=torch.bfloat16):
                  pass
            """,
        "through the module's file": """
              import torch
            - with torch.cuda.amp.autocast_mode.autocast(False):
            + with torch.amp.autocast("cuda", enabled=False):
                  pass
            """,
        "an annotation goes along": """
            - from torch.cuda.amp import GradScaler
            + from torch.amp import GradScaler
              def step(scaler: GradScaler, loss):
                  scaler.scale(loss).backward()
            - step(GradScaler(), None)
            + step(GradScaler("cuda"), None)
            """,
        "handed on as a value: reported, left alone": """
              import contextlib
              from torch.cuda.amp import autocast
              def run(context):
                  with context():
                      pass
              run(autocast)
            ! with autocast():
                  pass
            """,
        "a name of that module that the new one lacks: reported, left alone": """
              from torch.cuda.amp import autocast, common
            ! with autocast():
                  pass
            """,
        "arguments that nobody can count: reported, left alone": """
              import torch
              def context(*args):
            !     return torch.cuda.amp.autocast(*args)
            """,
    }
    valid = {
        "the new names": """
            import torch
            from torch.amp import GradScaler, autocast
            scaler = GradScaler("cuda")
            with torch.amp.autocast("cuda"), autocast("cpu"), torch.autocast("cuda"):
                pass
            """,
        "apex has functions of these names too": """
            from apex import amp
            model, optimizer = amp.initialize(None, None)
            with amp.autocast():
                pass
            """,
        "a class of one's own": """
            import torch
            class autocast:
                def __enter__(self): return self
                def __exit__(self, *rest): return None
            with autocast():
                pass
            """,
        "torch before 2.4 has no other names for all of them": """
            # target-torch: 2.2
            import torch
            with torch.cuda.amp.autocast():
                pass
            """,
        "the branch for an old torch, the new name stands in the other": """
            import torch
            def scaler(device, is_new):
                if is_new:
                    return torch.amp.GradScaler(device)
                return torch.cuda.amp.GradScaler()
            def other(device, is_new):
                return torch.amp.GradScaler(device) if is_new else torch.cuda.amp.GradScaler()
            class Scaler:
                def __init__(self, device):
                    try:
                        self.scaler = torch.amp.GradScaler(device=device)
                    except (AttributeError, TypeError):
                        self.scaler = torch.cuda.amp.GradScaler()
            """,
        "which of two it is depends on what is installed": """
            try:
                from torch.amp import autocast
            except ImportError:
                from torch.cuda.amp import autocast
            with autocast("cuda"):
                pass
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every use of an old name."""
        imports: dict[int, Edits | None] = {}
        for use in _uses(script):
            device, name = _old(script, use)
            if _new_name_beside(script, use, name):
                continue
            edits = _fix_of_use(script, use)
            line = _import_of(script, use)
            if line is not None:
                if id(line) not in imports:
                    imports[id(line)] = _fix_of_import(script, line)
                edits = imports[id(line)]
            new = f'torch.amp.{name}("{device}")'
            if name.startswith("custom"):
                new = f'torch.amp.{name}(device_type="{device}")'
            message = f"`{script.code(_func(use))}` is deprecated since torch 2.4: write `{new}`"
            fix = Fix.exact(f"Write `torch.amp.{name}`", edits) if edits else None
            yield Finding(self.code, script.span(use), message, fix)


def _func(use: cst.BaseExpression) -> cst.BaseExpression:
    return use.func if isinstance(use, cst.Call) else use


def _old(script: Script, use: cst.BaseExpression) -> tuple[str, str]:
    """Give the device and the last word of an old name, empty for anything else."""
    head, _, last = (script.name(_func(use)) or "").rpartition(".")
    return (_DEVICES[head], last) if head in _DEVICES and last in _NAMES else ("", "")


def _uses(script: Script) -> Iterator[cst.BaseExpression]:
    for call in script.all(cst.Call):
        if _old(script, call)[1]:
            yield call
    for decorator in script.all(cst.Decorator):
        bare = decorator.decorator
        if not isinstance(bare, cst.Call) and _old(script, bare)[1].startswith("custom"):
            yield bare


def _new_name_beside(script: Script, use: cst.BaseExpression, name: str) -> bool:
    """Whether the same function has the new name too: code for several versions of torch."""
    home = script.function(use)
    return home is not None and any(
        script.name(call.func) == f"torch.amp.{name}" for call in script.within(home, cst.Call)
    )


def _fix_of_use(script: Script, use: cst.BaseExpression) -> Edits | None:
    """Rewrite one use that is written in full."""
    arguments = _arguments(script, use)
    func = _func(use)
    root = func
    while isinstance(root, cst.Attribute):
        root = root.value
    if arguments is None or not isinstance(root, cst.Name) or script.name(root) != "torch":
        return None
    return (*script.rewrite.replace(func, f"{root.value}.amp.{_old(script, use)[1]}"), *arguments)


def _arguments(script: Script, use: cst.BaseExpression) -> Edits | None:
    """Name the device, and by name what used to go by position."""
    device, name = _old(script, use)
    if not isinstance(use, cst.Call):
        return script.rewrite.insert(script.span(use).end, f'(device_type="{device}")')
    if any(arg.star == "*" for arg in use.args):
        return None
    if name.startswith("custom"):
        plain = [arg for arg in use.args if arg.keyword is None]
        return None if plain else script.rewrite.with_keyword(use, "device_type", f'"{device}"')
    if not use.args:
        return script.rewrite.insert(script.rewrite.closing(use), f'"{device}"')
    edits = list(script.rewrite.insert(script.span(use.args[0]).start, f'"{device}", '))
    plain = [arg for arg in use.args if arg.keyword is None and not arg.star]
    if name == "GradScaler" or not plain:
        return tuple(edits)
    if len(plain) > len(_PARAMETERS):
        return None
    named = [
        edit
        for arg, parameter in zip(plain, _PARAMETERS, strict=False)
        for edit in script.rewrite.insert(script.span(arg.value).start, f"{parameter}=")
    ]
    first = script.rewrite.insert(
        script.span(plain[0].value).start, f'"{device}", {_PARAMETERS[0]}='
    )
    return (*first, *named[1:])


def _import_of(script: Script, use: cst.BaseExpression) -> cst.Import | cst.ImportFrom | None:
    """Give the import of the old module that a use goes through, None where it is spelled out."""
    root = _func(use)
    while isinstance(root, cst.Attribute):
        root = root.value
    if not isinstance(root, cst.Name):
        return None
    for binding in script.scopes.reaching(root):
        node = binding.node
        if isinstance(node, (cst.Import, cst.ImportFrom)) and binding.qualified != "torch":
            return node
    return None


def _fix_of_import(script: Script, line: cst.Import | cst.ImportFrom) -> Edits | None:
    """Rewrite an import of old names and every use that goes through it."""
    edits = _new_import(script, line)
    if edits is None or any(_import_of(script, use) is line and _hidden(script, use)
                            for use in _uses(script)):  # fmt: skip
        return None
    uses = [use for use in _uses(script) if _import_of(script, use) is line]
    shown = {id(_func(use)) for use in uses}
    names = [alias.evaluated_alias or alias.evaluated_name for alias in _aliases(line)]
    for mention in (each for name in names for each in script.tree.spelled(name)):
        if not _goes_through(script, mention, line):
            continue
        parent = script.parent(mention)
        whole = parent if isinstance(parent, cst.Attribute) else mention
        if id(whole) not in shown and id(mention) not in shown and not _is_type(script, whole):
            return None
    for use in uses:
        arguments = _arguments(script, use)
        if arguments is None:
            return None
        edits = (*edits, *arguments)
    return edits


def _hidden(script: Script, use: cst.BaseExpression) -> bool:
    """Whether a use goes through the import but not by one name or one attribute."""
    func = _func(use)
    return isinstance(func, cst.Attribute) and isinstance(func.value, cst.Attribute)


def _goes_through(script: Script, name: cst.Name, line: cst.Import | cst.ImportFrom) -> bool:
    return any(binding.node is line for binding in script.scopes.reaching(name))


def _is_type(script: Script, mention: cst.CSTNode) -> bool:
    """Whether a mention is an annotation or a class that something is compared with."""
    holder = script.parent(mention)
    if isinstance(holder, cst.Annotation):
        return True
    outer = script.parent(holder) if isinstance(holder, cst.Arg) else None
    return isinstance(outer, cst.Call) and script.name(outer.func) == "builtins.isinstance"


def _aliases(line: cst.Import | cst.ImportFrom) -> Sequence[cst.ImportAlias]:
    return () if isinstance(line.names, cst.ImportStar) else line.names


def _new_import(script: Script, line: cst.Import | cst.ImportFrom) -> Edits | None:
    """Change the module of an import, None where it imports other things as well."""
    aliases = _aliases(line)
    if isinstance(line, cst.Import):
        alias = aliases[0]
        if len(aliases) == 1 and alias.asname and alias.evaluated_name in _DEVICES:
            return script.rewrite.replace(alias.name, "torch.amp")
        return None
    module = script.code(line.module) if line.module is not None else ""
    names = [alias.evaluated_name for alias in aliases]
    if module in ("torch.cuda", "torch.cpu") and names == ["amp"] and line.module is not None:
        return script.rewrite.replace(line.module, "torch")
    if line.module is not None and module in _DEVICES and set(names) <= set(_NAMES):
        return script.rewrite.replace(line.module, "torch.amp")
    return None
