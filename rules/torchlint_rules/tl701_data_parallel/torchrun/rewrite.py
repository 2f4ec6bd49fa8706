"""The rewrite of a DataParallel script into one that runs under torchrun and plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import libcst as cst

from torchlint.api import Edits, Kind, Note, Script, method_of
from torchlint_rules.tl701_data_parallel.torchrun.agreement import Agreement
from torchlint_rules.tl701_data_parallel.torchrun.edits import Writer, merged
from torchlint_rules.tl701_data_parallel.torchrun.frame import Frame
from torchlint_rules.tl701_data_parallel.torchrun.numbers import Numbers
from torchlint_rules.tl701_data_parallel.torchrun.output import guarded, muted_bars
from torchlint_rules.tl701_data_parallel.torchrun.saved import Saved
from torchlint_rules.tl701_data_parallel.torchrun.shape import (
    DATA_PARALLEL,
    ObstacleError,
    Wrap,
    reads,
    shape_of,
)

_OWN_NAMES: Final = frozenset(
    "DISTRIBUTED RANK LOCAL_RANK WORLD_SIZE sum_over_ranks on_gpu".split()
)
_WRAPPER: Final = "DistributedDataParallel"
_WIDTH: Final = 100
_LOADING: Final = frozenset({"torch.load"})


@dataclass
class Rewritten:
    """The edits of the whole script, and the numbers that stay local to one process."""

    edits: Edits
    notes: tuple[Note, ...]


def under_torchrun(script: Script, call: cst.Call) -> Rewritten:
    """Return the rewrite of the script around a wrapped network; raises `ObstacleError`."""
    return _Rewriter(script, shape_of(script, call)).result()


@dataclass
class _Rewriter(Writer):
    def result(self) -> Rewritten:
        self._refuse_taken_names()
        Agreement(self.script, self.shape).check()
        self._devices()
        self._wrap()
        self._downloads()
        self._loader()
        self._epochs()
        numbers = Numbers(self.script, self.shape)
        numbers.write()
        self.edits += numbers.edits
        self._type_tests()
        self._prefix_tests()
        self.edits += Saved(self.script, self.shape).find()
        self.edits += guarded(self.script, {edit.span for edit in self.edits})
        self.edits += muted_bars(self.script)
        self._late_loads()
        frame = Frame(self.script, self.shape, sums=numbers.sums)
        frame.write(self.edits)
        return Rewritten(merged([*frame.edits, *self.edits, *frame.ends]), tuple(numbers.notes))

    def _refuse_taken_names(self) -> None:
        for name in self.script.tree.all(cst.Name):
            if name.value in _OWN_NAMES:
                raise ObstacleError(name, "the rewrite needs this name")

    # -- devices --------------------------------------------------------------

    def _devices(self) -> None:
        """Replace the first GPU by the GPU of this process; any other number is an obstacle."""
        rewrite = self.script.edits
        for text in self.script.tree.all(cst.SimpleString):
            value = text.value.strip("rbuRBU").strip("'\"")
            if value == "cuda:0":
                self.edits += rewrite.replace(text, 'f"cuda:{LOCAL_RANK}"')
            elif value.startswith("cuda:"):
                raise ObstacleError(
                    self.script.tree.parent(text) or text, "a GPU is chosen by number"
                )
        for joined in self.script.tree.all(cst.FormattedString):
            if "cuda:" in self.script.code(joined)[:8]:
                raise ObstacleError(joined, "a GPU is chosen by number")
        for call in self.script.tree.all(cst.Call):
            for given in self._device_numbers(call):
                if isinstance(given.value, cst.Integer) and given.value.value == "0":
                    self.edits += rewrite.replace(given.value, "LOCAL_RANK")
                elif self.script.kind(given.value) is not Kind.DEVICE:
                    raise ObstacleError(call, "a GPU is chosen by number")

    def _device_numbers(self, call: cst.Call) -> Iterator[cst.Arg]:
        name = self.script.name(call.func)
        plain = [arg for arg in call.args if arg.keyword is None]
        if name == "torch.cuda.set_device":
            yield from plain
        elif name == "torch.device":
            yield from plain[1:]
        elif name is None:
            asked = [arg for arg in call.args if arg.keyword and arg.keyword.value == "device"]
            first = (*plain[:1], *asked)
            if method_of(call) == "cuda":
                texts = (cst.SimpleString, cst.FormattedString)
                yield from (arg for arg in first if not isinstance(arg.value, texts))
            elif method_of(call) == "to":
                yield from (arg for arg in first if isinstance(arg.value, cst.Integer))

    # -- the wrap -------------------------------------------------------------

    def _wrap(self) -> None:
        wrap = self.shape.wrap
        target = wrap.target.value
        anchor = self._placed(wrap)
        if anchor is None:
            lines = ["if DISTRIBUTED:", *self._unwrapped(wrap), *self._ddp(wrap)]
            self.under(wrap.statement, *lines, "else:")
            return
        self._neutralise(wrap)
        self.after(anchor, "if DISTRIBUTED:", *self._ddp(wrap))
        self._refuse_between(wrap, anchor, target)

    def _unwrapped(self, wrap: Wrap) -> list[str]:
        """Return the line that places the network without wrapping it, if it needs one."""
        tail = self._tail(wrap)
        source = self.script.code(wrap.source)
        if source == wrap.target.value and not tail:
            return []
        return [f"\t{wrap.target.value} = {source}{tail}"]

    def _ddp(self, wrap: Wrap) -> list[str]:
        name = wrap.target.value
        if self._always_on_gpu(wrap):
            return [f"\t{name} = {_WRAPPER}({name}, device_ids=[LOCAL_RANK])"]
        return [
            f"\ton_gpu = next({name}.parameters()).is_cuda",
            f"\t{name} = {_WRAPPER}({name}, device_ids=[LOCAL_RANK] if on_gpu else None)",
        ]

    def _always_on_gpu(self, wrap: Wrap) -> bool:
        return ".cuda(" in self._tail(wrap) and not list(self._ifs(wrap.statement))

    def _tail(self, wrap: Wrap) -> str:
        """Return the calls chained to the wrapped network, such as `.cuda()`."""
        tail, node = "", wrap.whole
        while node is not wrap.call:
            site = self.script.calls.at(cst.ensure_type(node, cst.Call))
            given = ", ".join(map(self.script.code, site.node.args))
            tail, node = f".{site.method}({given}){tail}", site.receiver
        return tail

    def _ifs(self, node: cst.CSTNode) -> Iterator[cst.If]:
        for outer in self.script.tree.ancestors(node):
            if isinstance(outer, cst.FunctionDef) or outer is self.shape.entry.block:
                return
            if isinstance(outer, cst.If):
                yield outer

    def _placed(self, wrap: Wrap) -> cst.CSTNode | None:
        """Return the statement after which the network is wrapped and on its device.

        None if that is the statement that wraps it, and it always runs.
        """
        tree = self.script.tree
        ifs = list(self._ifs(wrap.statement))
        top = ifs[-1] if ifs else wrap.statement
        block = tree.parent(top)
        assert block is not None
        moves = [call for call in self._moves(wrap) if tree.inside(call, block)]
        if not ifs and not moves:
            return None
        last = max(moves, key=tree.order) if moves else wrap.statement
        line = [last, *tree.ancestors(last)]
        anchor = line[line.index(block) - 1]
        if not self.script.edits.stands_alone(anchor):
            raise ObstacleError(anchor, "it shares its line with other statements")
        return anchor

    def _moves(self, wrap: Wrap) -> Iterator[cst.Call]:
        """Yield the calls after the wrapping that move the network to its device."""
        names = {wrap.target.value, self.script.code(wrap.source)}
        home = self.script.scopes.home(wrap.call)
        for site in self.script.calls.of_methods("to", "cuda"):
            call = site.node
            receiver = site.receiver
            if not isinstance(receiver, cst.Name) or receiver.value not in names:
                continue
            behind = self.script.tree.order(call) > self.script.tree.end(wrap.statement)
            if behind and self.script.scopes.home(call) is home:
                if next(self.script.loops.around(call), None) is None:
                    yield call

    def _neutralise(self, wrap: Wrap) -> None:
        """Keep wrapping in DataParallel for runs without torchrun."""
        around = next(self._ifs(wrap.statement), None)
        unwrapped = self._unwrapped(wrap)
        if unwrapped:
            self.under(wrap.statement, "if DISTRIBUTED:", *unwrapped, "else:")
        elif around is not None and self._about_wrap_only(around, wrap):
            test = self.script.code(around.test)
            if isinstance(around.test, (cst.BooleanOperation, cst.IfExp, cst.Lambda)):
                test = f"({test})" if not around.test.lpar else test
            self.edits += self.script.edits.replace(around.test, f"not DISTRIBUTED and {test}")
        else:
            self.under(wrap.statement, "if not DISTRIBUTED:")

    def _about_wrap_only(self, around: cst.If, wrap: Wrap) -> bool:
        """Return whether an `if` only wraps the network and prints."""
        is_elif = isinstance(self.script.tree.parent(around), cst.If)
        if around.orelse is not None or is_elif or not isinstance(around.body, cst.IndentedBlock):
            return False
        return all(line is wrap.statement or self._prints(line) for line in around.body.body)

    def _prints(self, line: cst.BaseStatement) -> bool:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            return False
        small = line.body[0]
        return (
            isinstance(small, cst.Expr)
            and isinstance(small.value, cst.Call)
            and self.script.name(small.value.func) == "builtins.print"
        )

    def _refuse_between(self, wrap: Wrap, anchor: cst.CSTNode, target: str) -> None:
        tree = self.script.tree
        for attribute in reads(self.script.tree.all(cst.Attribute), target, "module"):
            if tree.order(wrap.call) < tree.order(attribute) < tree.end(anchor):
                raise ObstacleError(attribute, "the network is read before it is on its device")

    # -- data -----------------------------------------------------------------

    def _loader(self) -> None:
        shape, script = self.shape, self.script
        loader, rewrite = shape.loader, script.edits
        site = script.calls.at(loader)
        self._share_of_batch()
        dataset = script.code(shape.dataset)
        lines = []
        if not isinstance(shape.dataset, (cst.Name, cst.Attribute)):
            name = self._free(self._beside("dataset"))
            flat = script.tree.breaks_lines(shape.dataset)
            lines.append(f"{name} = {dataset if flat else script.tree.text(shape.dataset)}")
            self.edits += rewrite.replace(shape.dataset, name)
            dataset = name
        options = [dataset] if self._made_in_entry() else [dataset, "WORLD_SIZE", "RANK"]
        if not shape.shuffled:
            options.append("shuffle=False")
        drop = site.given("drop_last")
        if drop is not None and not script.values.value_of(drop.value).equals(False):
            options.append(f"drop_last={script.code(drop.value)}")
        made = f"DistributedSampler({', '.join(options)})"
        if shape.random_sampler is not None:
            drawn = script.code(shape.random_sampler)
            chosen = f"{made} if DISTRIBUTED else {drawn}"
            self.edits += rewrite.replace(shape.random_sampler, chosen)
            return
        sampler = self._sampler_name()
        lines.append(f"{sampler} = {made} if DISTRIBUTED else None")
        self.before(shape.loader_line, *lines)
        given = site.given("shuffle")
        if shape.shuffled and given is not None:
            if not isinstance(given.value, cst.Comparison):
                self.edits += rewrite.replace(given.value, f"{sampler} is None")
        self._set_sampler(site.given("sampler"), sampler)

    def _share_of_batch(self) -> None:
        """Divide the batch size by the number of processes."""
        script, rewrite = self.script, self.script.edits
        size = self.shape.batch_size.value
        code = script.code(size)
        plain = (cst.Name, cst.Attribute, cst.Integer, cst.Call, cst.Subscript)
        if not isinstance(size, plain) and not size.lpar:
            code = f"({code})"
        self.edits += rewrite.replace(size, f"{code} // WORLD_SIZE")

    def _set_sampler(self, given: cst.Arg | None, sampler: str) -> None:
        """Pass the sampler to the loader, on its own line if the line gets too long."""
        script, loader = self.script, self.shape.loader
        last = loader.args[-1]
        start = script.span(last).start
        line = script.edits.line_start(start)
        head = script.tree.source.text[line:start]
        inside = script.span(loader.args[0]).start
        added = len(f" // WORLD_SIZE, sampler={sampler}")
        added += len(f"{sampler} is ") if self.shape.shuffled else 0
        width = script.edits.line_end(start) - line + added
        if given is not None or not head.strip() or width <= _WIDTH:
            self.edits += script.edits.set_argument(loader, given, "sampler", sampler)
            return
        column = head[: len(head) - len(head.lstrip())]
        if inside > line:
            column = " " * (inside - script.edits.line_start(inside))
        end = script.span(last.value).end
        text = f",{script.edits.newline}{column}sampler={sampler}"
        self.edits += script.edits.insert(end, text)

    def _made_in_entry(self) -> bool:
        """Return whether the loader is built after the start of the process group."""
        entry = self.script.program.entry(self.shape.loader)
        return entry is not None and entry.block is self.shape.entry.block

    def _beside(self, word: str) -> str:
        """Return a name that matches the loader's: `train_loader` gives `train_dataset`."""
        name = self.shape.loader_name.value
        for part in ("data_loader", "dataloader", "loader"):
            if part in name:
                return name.replace(part, word)
        return f"{name}_{word}"

    def _free(self, name: str) -> str:
        if self.script.tree.spelled(name):
            raise ObstacleError(self.shape.loader, f"the rewrite needs the name `{name}`")
        return name

    def _sampler_name(self) -> str:
        name = self._beside("sampler")
        taken = self.script.scopes.scope(self.shape.loader).bindings.get(name, [])
        nothing = all(
            isinstance(each.value, cst.Name) and each.value.value == "None" for each in taken
        )
        return name if taken and nothing else self._free(name)

    def _downloads(self) -> None:
        """Let one process of each machine download before the others read."""
        lines = [
            self.script.tree.statement(call)
            for call in self.script.tree.all(cst.Call)
            if self.script.calls.at(call).argument("download").equals(True)
        ]
        if not lines:
            return
        first, last = lines[0], lines[-1]
        inside = all(
            (entry := self.script.program.entry(line)) is not None
            and entry.block is self.shape.entry.block
            for line in lines
        )
        block = self.script.tree.parent(first)
        alone = all(self.script.edits.stands_alone(line) for line in lines)
        if (
            not inside
            or not alone
            or any(self.script.tree.parent(line) is not block for line in lines)
        ):
            raise ObstacleError(first, "every process would download this at once")
        self.before(
            first, "if LOCAL_RANK != 0:", "\tdist.barrier()  # local rank 0 downloads first"
        )
        self.after(last, "if DISTRIBUTED and LOCAL_RANK == 0:", "\tdist.barrier()")

    def _late_loads(self) -> None:
        """Wait for rank 0 before a checkpoint of this run is loaded."""
        epochs = self.shape.epochs
        if epochs is None:
            return
        tree = self.script.tree
        for call in self.script.tree.all(cst.Call):
            if self.script.name(call.func) not in _LOADING:
                continue
            if tree.inside(call, epochs):
                raise ObstacleError(call, "a checkpoint is read while rank 0 may still write it")
            behind = tree.order(call) > tree.end(epochs)
            if behind and self.script.scopes.home(call) is self.script.scopes.home(epochs):
                line = self._whole_statement(call)
                if not self.script.edits.stands_alone(line):
                    raise ObstacleError(call, "a checkpoint is read while rank 0 may write it")
                self.before(line, "if DISTRIBUTED:", "\tdist.barrier()  # rank 0 has written it")

    def _whole_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement around a node that every process runs."""
        line = self.script.tree.statement(node)
        around = list(self._ifs(line))
        return around[-1] if around else line

    # -- loops ----------------------------------------------------------------

    def _epochs(self) -> None:
        epochs = self.shape.epochs
        if epochs is None or not self.shape.shuffled:
            return
        assert isinstance(epochs.target, cst.Name)
        counter = epochs.target.value
        if counter.startswith("_"):
            if any(
                name.value == counter and self.script.scopes.reads(name)
                for name in self.script.tree.within(epochs.body, cst.Name)
            ):
                raise ObstacleError(epochs.target, "the epoch's number has no name of its own")
            counter = self._free("epoch")
            self.edits += self.script.edits.replace(epochs.target, counter)
        assert isinstance(epochs.body, cst.IndentedBlock)
        self.above(
            epochs.body.body[0],
            "if DISTRIBUTED:",
            f"\t{self._sampler_there()}.set_epoch({counter})",
        )

    def _sampler_there(self) -> str:
        """Return the name of the sampler in the epoch loop."""
        epochs = self.shape.epochs
        assert epochs is not None
        script = self.script
        home = script.scopes.home(self.shape.loader)
        named = self.shape.random_sampler is None
        if named and (isinstance(home, cst.Module) or home is script.scopes.home(epochs)):
            return self._sampler_name()
        for name in script.tree.within(epochs.body, cst.Name):
            if script.scopes.reads(name):
                if script.program.loader_call(name) is self.shape.loader:
                    return f"{name.value}.sampler"
        raise ObstacleError(epochs, "the epoch loop cannot reach the training loader")

    def _type_tests(self) -> None:
        """Make `isinstance(model, nn.DataParallel)` true for the new wrapper as well."""
        for call in self.script.calls.of("builtins.isinstance"):
            if len(call.node.args) != 2:
                continue
            asked = call.node.args[1].value
            code = self.script.code(asked)
            if self.script.name(asked) == DATA_PARALLEL:
                self.edits += self.script.edits.replace(asked, f"({code}, {_WRAPPER})")
            elif isinstance(asked, cst.Tuple) and any(
                self.script.name(each.value) == DATA_PARALLEL for each in asked.elements
            ):
                last = asked.elements[-1].value
                end = self.script.span(last).end
                self.edits += self.script.edits.insert(end, f", {_WRAPPER}")

    def _prefix_tests(self) -> None:
        """Make `if torch.cuda.device_count() > 1:` use `model.module` under torchrun as well."""
        wrap = self.shape.wrap
        asking: list[cst.If | cst.IfExp] = [
            *self.script.tree.all(cst.If),
            *self.script.tree.all(cst.IfExp),
        ]
        for node in asking:
            counts = [
                call
                for call in self.script.tree.within(node.test, cst.Call)
                if self.script.name(call.func) == "torch.cuda.device_count"
            ]
            if not counts or self.script.tree.inside(wrap.call, node):
                continue
            if self._reads_module(node.body):
                code = self.script.code(node.test)
                self.edits += self.script.edits.replace(node.test, f"DISTRIBUTED or {code}")
            elif self._reads_module(node):
                raise ObstacleError(node.test, "under torchrun the network is wrapped in any case")

    def _reads_module(self, node: cst.CSTNode) -> bool:
        target = self.shape.wrap.target.value
        return any(
            True for _ in reads(self.script.tree.within(node, cst.Attribute), target, "module")
        )
