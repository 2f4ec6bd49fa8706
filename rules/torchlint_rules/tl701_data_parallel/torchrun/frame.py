"""The frame of a torchrun script: imports, torchrun's variables, the process group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import Edit, How
from torchlint_rules.tl701_data_parallel.torchrun.edits import Writer
from torchlint_rules.tl701_data_parallel.torchrun.shape import ObstacleError

_LEAVE: Final = ("if DISTRIBUTED:", "\tdist.destroy_process_group()")


@dataclass
class Frame(Writer):
    """Adds the start and the end to a script."""

    sums: bool = False
    """Whether numbers are summed over the processes."""
    ends: list[Edit] = field(default_factory=list)
    """What goes behind everything else that is put at the same place; `edits` go before it."""

    def write(self, inner: Sequence[Edit]) -> None:
        """Frame a script that `inner` changes; raises `ObstacleError`."""
        self._refuse_above(self._last_import(), inner)
        self._refuse_late_choice(self._last_import())
        self._frame()

    def _frame(self) -> None:
        """Add the imports, torchrun's variables, and joining and leaving the process group."""
        start = self._start()
        entry = self.shape.entry
        anchor = self._last_import()
        header = [
            "",
            'DISTRIBUTED = "LOCAL_RANK" in os.environ  # started by torchrun',
            'RANK = int(os.environ.get("RANK", 0))',
            'LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))',
            'WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))',
        ]
        if isinstance(entry.block, cst.Module):
            header += start
            self._end(entry.block.body[-1], "", *_LEAVE)
        else:
            self._open(start)
        if self.sums:
            header += _SUM_OVER_RANKS
        self._imports(anchor, header)

    def _open(self, start: Sequence[str]) -> None:
        """Put the start and the end into the main guard."""
        block, rewrite = self.shape.entry.block, self.script.edits
        if isinstance(block, cst.IndentedBlock):
            self.above(block.body[0], *start)
            self._end(block.body[-1], *_LEAVE)
            return
        guard = self.script.tree.parent(block)
        assert guard is not None
        place = self.script.span(block.body[0]).start
        colon = self.script.tree.source.text.rindex(":", 0, place) + 1
        joint = f"{rewrite.newline}{self.unit}"
        self.edits += rewrite.delete(colon, place)
        self.edits += rewrite.insert(place, joint.join(["", *self.lines(*start), ""]))
        self._end(guard, *(f"\t{line}" for line in _LEAVE))

    def _end(self, statement: cst.CSTNode, *lines: str) -> None:
        """Put lines behind a statement, and behind all that others put there."""
        self.ends += self.script.edits.after(statement, *self.lines(*lines))

    def _refuse_above(self, anchor: cst.BaseStatement, inner: Sequence[Edit]) -> None:
        """Refuse changes above the definitions that they need."""
        for edit in inner:
            if edit.span.start < self.script.span(anchor).start:
                raise ObstacleError(anchor, "code above this import would change")

    def _refuse_late_choice(self, anchor: cst.BaseStatement) -> None:
        """Refuse a choice of GPUs after each process has selected its own."""
        for text in self.script.tree.all(cst.SimpleString):
            if text.value.strip("'\"") == "CUDA_VISIBLE_DEVICES":
                if self.script.tree.order(text) > self.script.tree.order(anchor):
                    line = self.script.tree.statement(text)
                    raise ObstacleError(line, "GPUs are chosen here: leave that to the shell")

    def _start(self) -> list[str]:
        lines = [
            "if DISTRIBUTED:",
            "\tif torch.cuda.is_available():",
            "\t\ttorch.cuda.set_device(LOCAL_RANK)",
            "\tdist.init_process_group()",
            "\tif RANK != 0:",
            '\t\tsys.stdout = open(os.devnull, "w")  # rank 0 speaks for all',
        ]
        logs = [
            name
            for name, bindings in self.script.scopes.module.bindings.items()
            if any(binding.qualified == "logging" for binding in bindings)
        ]
        if logs:
            lines.append(f"\t\t{logs[0]}.disable({logs[0]}.WARNING)")
        return lines

    def _last_import(self) -> cst.BaseStatement:
        """Return the last statement of the imports at the top of the file."""
        found: cst.BaseStatement | None = None
        for line in self.script.tree.module.body:
            if _imports(line):
                found = line
            elif found is not None:
                break
        for module in ("os", "sys", "torch"):
            for bound in self.script.scopes.module.bindings.get(module, []):
                at = self.script.tree.statement(bound.node)
                if found is None or self.script.tree.order(at) > self.script.tree.order(found):
                    found = at
        if found is None or not self._at_top(found):
            raise ObstacleError(self.shape.entry.statement, "there is no place for imports")
        return found

    def _at_top(self, line: cst.BaseStatement) -> bool:
        in_module = self.script.tree.parent(line) is self.script.tree.module
        return in_module and self.script.edits.stands_alone(line)

    def _imports(self, anchor: cst.BaseStatement, header: Sequence[str]) -> None:
        script = self.script
        for module in ("os", "sys", "torch"):
            bound = script.scopes.module.bindings.get(module, [])
            if not bound:
                found = script.edits.importing(module)
                self.edits += found[1] if found is not None and found[0] == module else ()
            elif any(each.qualified != module for each in bound):
                raise ObstacleError(bound[0].node, f"the rewrite needs the name `{module}`")
        place = self._torch_import(anchor)
        lines = []
        for line, name in (
            ("import torch.distributed as dist", "dist"),
            ("from torch.nn.parallel import DistributedDataParallel", "DistributedDataParallel"),
            ("from torch.utils.data import DistributedSampler", "DistributedSampler"),
        ):
            bound = script.scopes.module.bindings.get(name, [])
            if any(each.how is How.IMPORT and each.qualified.endswith(name) for each in bound):
                continue
            if script.tree.spelled(name):
                raise ObstacleError(self.shape.wrap.call, f"the name `{name}` is taken")
            lines.append(line)
        if lines:
            self.after(place, *lines)
        end = script.edits.after_line(script.span(anchor).end)
        blank = len(script.tree.source.text[end:]) - len(
            script.tree.source.text[end:].lstrip("\r\n")
        )
        wanted = 2 if header[-1].startswith("\t") and self.sums else 1
        tail = [""] * max(0, wanted - blank // len(script.edits.newline))
        self.after(anchor, *header, *tail)

    def _torch_import(self, anchor: cst.BaseStatement) -> cst.BaseStatement:
        """Return the last torch import among those at the top, else the last import."""
        found = anchor
        for line in self.script.tree.module.body:
            if _imports(line):
                word = self.script.code(line).split()[1]
                if word == "torch" or word.startswith("torch."):
                    found = line
            if line is anchor:
                break
        return found


_SUM_OVER_RANKS: Final = (
    "",
    "",
    "def sum_over_ranks(value):",
    '\t"""Add up a number that each process has for its share of the samples."""',
    "\tif not DISTRIBUTED:",
    "\t\treturn value",
    "\ttotal = torch.as_tensor(value, dtype=torch.float64).detach().clone()",
    "\tdist.all_reduce(total)",
    "\treturn total.to(value.dtype) if torch.is_tensor(value) else type(value)(total)",
)


def _imports(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(
        line.body[0], (cst.Import, cst.ImportFrom)
    )
