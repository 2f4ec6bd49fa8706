"""The frame of a torchrun script: imports, torchrun's variables, the process group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import Edit, Edits, Script, Span
from torchlint_rules.tl701_data_parallel.torchrun.shape import Shape
from torchlint_rules.tl701_data_parallel.torchrun.wrap import ObstacleError

_MODULES: Final = ("os", "sys", "torch")
_VARIABLES: Final = (
    "",
    'DISTRIBUTED = "LOCAL_RANK" in os.environ  # started by torchrun',
    'RANK = int(os.environ.get("RANK", 0))',
    'LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))',
    'WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))',
)
_JOIN: Final = (
    "if DISTRIBUTED:",
    "\tif torch.cuda.is_available():",
    "\t\ttorch.cuda.set_device(LOCAL_RANK)",
    "\ttorch.distributed.init_process_group()",
    "\tif RANK != 0:",
    '\t\tsys.stdout = open(os.devnull, "w")  # rank 0 speaks for all',
)
_LEAVE: Final = ("if DISTRIBUTED:", "\ttorch.distributed.destroy_process_group()")


@dataclass
class Writer:
    """Collects the edits of one part of the rewrite."""

    script: Script
    shape: Shape
    edits: list[Edit] = field(default_factory=list)

    def lines(self, *lines: str) -> list[str]:
        """Indent lines that are written with tabs by the unit of the file."""
        return [line.replace("\t", self.script.edits.unit()) for line in lines]

    def before(self, statement: cst.CSTNode, *lines: str) -> None:
        """Insert lines before a statement."""
        self.edits += self.script.edits.before(statement, *self.lines(*lines))

    def after(self, statement: cst.CSTNode, *lines: str) -> None:
        """Insert lines after a statement."""
        self.edits += self.script.edits.after(statement, *self.lines(*lines))

    def above(self, statement: cst.CSTNode, *lines: str) -> None:
        """Insert lines above a statement and its comments."""
        rewrite = self.script.edits
        indent = rewrite.indent_of(statement)
        text = "".join(f"{indent}{line}{rewrite.newline}" for line in self.lines(*lines))
        self.edits += rewrite.insert(rewrite.above(statement), text)

    def under(self, statement: cst.CSTNode, *header: str) -> None:
        """Indent a statement under the last of some header lines."""
        rewrite = self.script.edits
        indent = rewrite.indent_of(statement)
        lines = f"{rewrite.newline}{indent}".join(self.lines(*header))
        self.edits += rewrite.wrap([statement], lines)


def merged(edits: Sequence[Edit]) -> Edits:
    """Merge all insertions at one place into one edit, in the order in which they were added."""
    texts: dict[Span, list[str]] = {}
    for edit in dict.fromkeys(edits):
        texts.setdefault(edit.span, []).append(edit.text)
    return tuple(Edit(span, "".join(parts)) for span, parts in texts.items())


@dataclass
class Frame(Writer):
    """Adds the start and the end to a script."""

    ends: list[Edit] = field(default_factory=list)
    """What goes behind everything else that is put at the same place; `edits` go before it."""

    def write(self, inner: Sequence[Edit]) -> None:
        """Frame a script that `inner` changes; raises `ObstacleError`."""
        block, anchor = self.shape.entry.block, self._last_import()
        if any(edit.span.start < self.script.span(anchor).start for edit in inner):
            raise ObstacleError(anchor, "code above this import would change")
        for module in _MODULES:
            bound = self.script.scopes.module.bindings.get(module, [])
            if any(each.qualified != module for each in bound):
                raise ObstacleError(bound[0].node, f"the rewrite needs the name `{module}`")
            found = None if bound else self.script.edits.importing(module)
            self.edits += found[1] if found is not None else ()
        header, join = list(_VARIABLES), [*_JOIN, *self._silence()]
        if isinstance(block, cst.Module):
            header += join
            self._end(block.body[-1], "", *_LEAVE)
        else:
            self.above(block.body[0], *join)
            self._end(block.body[-1], *_LEAVE)
        end = self.script.edits.after_line(self.script.span(anchor).end)
        below = self.script.tree.source.text[end:]
        self.after(anchor, *header, *([] if below.startswith(("\n", "\r")) else [""]))

    def _end(self, statement: cst.CSTNode, *lines: str) -> None:
        """Put lines behind a statement, and behind all that others put there."""
        self.ends += self.script.edits.after(statement, *self.lines(*lines))

    def _silence(self) -> list[str]:
        """Return the line that turns off the log of a process, if the script logs."""
        for name, bindings in self.script.scopes.module.bindings.items():
            if any(binding.qualified == "logging" for binding in bindings):
                return [f"\t\t{name}.disable({name}.WARNING)"]
        return []

    def _last_import(self) -> cst.BaseStatement:
        """Return the last statement of the imports at the top of the file."""
        tree = self.script.tree
        found: cst.BaseStatement | None = None
        for line in tree.module.body:
            if isinstance(line, cst.SimpleStatementLine) and isinstance(
                line.body[0], (cst.Import, cst.ImportFrom)
            ):
                found = line
            elif found is not None:
                break
        for module in _MODULES:
            for bound in self.script.scopes.module.bindings.get(module, []):
                at = tree.statement(bound.node)
                found = at if found is None else max(found, at, key=tree.order)
        if found is None or tree.parent(found) is not tree.module:
            raise ObstacleError(self.shape.entry.statement, "there is no place for imports")
        if not self.script.edits.stands_alone(found):
            raise ObstacleError(found, "there is no place for imports")
        return found
