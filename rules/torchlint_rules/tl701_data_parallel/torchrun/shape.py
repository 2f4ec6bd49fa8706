"""The form of a script that can be rewritten for torchrun, or the line that prevents it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import How, Kind, Loop, Role, Script, Start, State, method_of, receiver_of

DATA_PARALLEL: Final = "torch.nn.DataParallel"
_RANDOM_SAMPLER: Final = "torch.utils.data.RandomSampler"
_MOVES: Final = frozenset({"to", "cuda"})
_CHAINED: Final = _MOVES | {"train", "float", "half", "double"}
_SPAWNS: Final = frozenset({
    "torch.multiprocessing.spawn", "torch.multiprocessing.set_start_method",
    "torch.multiprocessing.Process", "multiprocessing.set_start_method", "multiprocessing.Process",
    "torch.multiprocessing.spawn.spawn",
})  # fmt: skip
_INDEX_DRAWS: Final = {
    "torch": frozenset({
        "torch.utils.data.random_split", "torch.randperm", "torch.rand", "torch.randn",
        "torch.randint",
    }),
    "numpy": frozenset({
        "numpy.random.permutation", "numpy.random.shuffle", "numpy.random.choice",
        "numpy.random.randn", "numpy.random.rand", "numpy.random.normal", "numpy.random.randint",
        "sklearn.model_selection.train_test_split",
    }),
    "random": frozenset({"random.shuffle", "random.sample", "random.choice"}),
}  # fmt: skip
_SEEDS: Final = {
    "torch": ("torch.manual_seed", "torch.random.manual_seed"),
    "numpy": ("numpy.random.seed",),
    "random": ("random.seed",),
}
_OWN_SEED: Final = frozenset({"generator", "random_state", "seed"})
_MODULE_API: Final = frozenset(
    "module parameters named_parameters buffers named_buffers modules named_modules children "
    "named_children state_dict load_state_dict train eval to cuda cpu half float double "
    "bfloat16 zero_grad requires_grad_ apply training forward share_memory type no_sync "
    "register_forward_hook device_ids".split()
)
_WITHOUT_GRADIENT: Final = frozenset(
    "state_dict load_state_dict parameters named_parameters train eval modules".split()
)


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

    @property
    def source(self) -> cst.BaseExpression:
        """The wrapped network."""
        return self.call.args[0].value


class Shape(NamedTuple):
    """A training script of the common form, with the parts that change."""

    wrap: Wrap
    entry: Start
    batches: Loop
    epochs: cst.For | None
    loader: cst.Call
    loader_line: cst.SimpleStatementLine
    loader_name: cst.Name
    dataset: cst.BaseExpression
    shuffled: bool
    batch_size: cst.Arg
    random_sampler: cst.Call | None
    """The `RandomSampler(dataset)` of the loader, if it shuffles with one."""


def wraps(script: Script) -> list[cst.Call]:
    """Return the calls that wrap a network in `DataParallel`."""
    return [site.node for site in script.calls.of(DATA_PARALLEL)]


def shape_of(script: Script, call: cst.Call) -> Shape:
    """Return the form of a script around one wrapping; raises `ObstacleError`."""
    return _Reader(script).shape(call)


def chain_of(script: Script, call: cst.Call) -> cst.BaseExpression:
    """Return a call with the chained methods that return the same network."""
    whole: cst.BaseExpression = call
    while True:
        attribute = script.tree.parent(whole)
        if not isinstance(attribute, cst.Attribute) or attribute.value is not whole:
            return whole
        outer = script.tree.parent(attribute)
        if not isinstance(outer, cst.Call) or attribute.attr.value not in _CHAINED:
            return whole
        whole = outer


def reads(
    attributes: Iterable[cst.Attribute], name: str, attribute: str
) -> Iterator[cst.Attribute]:
    """Yield those attributes that a name is asked for, such as `model.module`."""
    for each in attributes:
        if each.attr.value == attribute and isinstance(each.value, cst.Name):
            if each.value.value == name:
                yield each


class _Reader:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.program = script.program
        self.names: set[str] = set()

    def shape(self, call: cst.Call) -> Shape:
        self._refuse_processes()
        owner = self.script.scopes.class_of(call)
        if owner is not None:
            raise ObstacleError(owner, "the network is wrapped in a class")
        wrap = self._wrap(call)
        self.names = {wrap.target.value}
        if isinstance(wrap.source, cst.Name):
            self.names.add(wrap.source.value)
        entry = self.program.entry(call)
        if entry is None:
            raise ObstacleError(
                self.script.scopes.function(call) or call,
                "where the script enters it is not visible here",
            )
        self._refuse_end(entry)
        batches = self._batches(entry)
        loader, line, name = self._loader(batches)
        shape = Shape(
            wrap,
            entry,
            batches,
            self._epochs(batches),
            loader,
            line,
            name,
            *self._loader_arguments(loader),
        )
        self._refuse_network(wrap)
        self._refuse_optimizers(batches)
        self._refuse_losses(batches)
        self._refuse_draws()
        self._refuse_batch_size(shape)
        return shape

    # -- the wrap -------------------------------------------------------------

    def _wrap(self, call: cst.Call) -> Wrap:
        script = self.script
        others = [other for other in wraps(script) if other is not call]
        if others:
            raise ObstacleError(others[0], "several networks are wrapped")
        if not call.args or call.args[0].star or call.args[0].keyword is not None:
            raise ObstacleError(call, "what is wrapped is not spelled out")
        self._refuse_device_ids(call)
        whole = chain_of(script, call)
        target, statement = self._assigned(call, whole, "the wrapped network")
        for outer in script.tree.ancestors(statement):
            if isinstance(outer, (cst.For, cst.While, cst.Try, cst.With, cst.ClassDef)):
                raise ObstacleError(call, "it stands in a loop, class, `try` or `with`")
            if isinstance(outer, cst.FunctionDef):
                break
        return Wrap(call, whole, target, statement)

    def _assigned(
        self, call: cst.Call, value: cst.BaseExpression, what: str
    ) -> tuple[cst.Name, cst.SimpleStatementLine]:
        """Return the only name that a value is assigned to, and the line that does it."""
        assign, line = self.script.tree.parent(value), self.script.tree.statement(call)
        if (
            not isinstance(assign, cst.Assign)
            or assign.value is not value
            or len(assign.targets) != 1
            or not isinstance(assign.targets[0].target, cst.Name)
            or not isinstance(line, cst.SimpleStatementLine)
            or not self.script.edits.stands_alone(line)
        ):
            raise ObstacleError(call, f"{what} is not assigned to a plain name")
        return assign.targets[0].target, line

    def _refuse_device_ids(self, call: cst.Call) -> None:
        site = self.script.calls.at(call)
        if site.has_splat:
            raise ObstacleError(call, "its arguments are not spelled out")
        for name in ("output_device", "dim"):
            given = site.given(name)
            if given is not None:
                raise ObstacleError(given, f"`{name}` has no counterpart")
        ids = site.given("device_ids")
        if ids is None:
            return
        text = self.script.values.code_of(ids.value).replace(" ", "")
        every = ("range(torch.cuda.device_count())", "list(range(torch.cuda.device_count()))")
        if text not in ("None", *every):
            raise ObstacleError(ids, "GPUs are chosen by number")

    def _refuse_processes(self) -> None:
        for call in self.script.tree.all(cst.Call):
            name = self.script.name(call.func)
            if name in _SPAWNS:
                raise ObstacleError(call, "the script starts processes of its own")
            if name == "torch.autograd.grad":
                raise ObstacleError(
                    call, "gradients that it takes are not shared between processes"
                )
            if name == "torch.optim.LBFGS":
                raise ObstacleError(call, "its line search would differ between processes")
        for handler in self.script.tree.all(cst.ExceptHandler):
            if any(self.script.loops.is_step(c) for c in self._tried(handler)):
                raise ObstacleError(handler, "a process that skips a step stops all the others")

    def _tried(self, handler: cst.ExceptHandler) -> Iterator[cst.Call]:
        outer = self.script.tree.parent(handler)
        if isinstance(outer, cst.Try) and self.script.loops.batch_loop(outer) is not None:
            yield from self.script.tree.within(outer.body, cst.Call)

    def _refuse_end(self, entry: Start) -> None:
        last = entry.block.body[-1]
        simple = isinstance(entry.block, cst.SimpleStatementSuite)
        if simple and len(entry.block.body) > 1:
            raise ObstacleError(last, "it shares its line with other statements")
        for call in self.script.tree.within(last, cst.Call):
            if self.script.name(call.func) in ("sys.exit", "builtins.exit", "builtins.quit"):
                raise ObstacleError(call, "it leaves before the process group can be closed")

    # -- loops and loaders ----------------------------------------------------

    def _batches(self, entry: Start) -> Loop:
        loops = self.program.training_loops()
        if not loops:
            raise ObstacleError(entry.statement, "the training loop is not in this file")
        if len(loops) > 1:
            raise ObstacleError(loops[1].node, "there is a second training loop")
        loop = loops[0]
        drawn = isinstance(loop.node, cst.For) and self.script.values.kinds.loader(loop.node.iter)
        if not drawn:
            raise ObstacleError(
                loop.node, "the loop does not run over a DataLoader that is visible here"
            )
        if self.script.scopes.class_of(loop.node) is not None:
            raise ObstacleError(loop.node, "the training loop stands in a class")
        start = self.program.entry(loop.node)
        if start is None or start.block is not entry.block:
            raise ObstacleError(loop.node, "who runs the training loop is not visible here")
        return loop

    def _loader(self, loop: Loop) -> tuple[cst.Call, cst.SimpleStatementLine, cst.Name]:
        script = self.script
        assert loop.loader is not None
        loader = self.program.loader_call(loop.loader)
        if loader is None:
            raise ObstacleError(loop.loader, "it is not one DataLoader made in this file")
        name, line = self._assigned(loader, loader, "the training loader")
        if next(script.loops.around(loader), None) is not None:
            raise ObstacleError(loader, "the training loader is made in a loop")
        if self.program.entry(loader) is None:
            raise ObstacleError(
                loader, "the code that makes the training loader runs more than once"
            )
        for other in self.program.draws(loader):
            if other.role is not Role.TRAIN_BATCH:
                raise ObstacleError(other.node, "the training loader is read here, too")
        return loader, line, name

    def _random_sampler(
        self, sampler: cst.CSTNode | None, dataset: cst.BaseExpression
    ) -> cst.Call | None:
        """Return the call of a sampler that is equivalent to `shuffle=True`."""
        if not isinstance(sampler, cst.Call) or not isinstance(dataset, (cst.Name, cst.Attribute)):
            return None
        site = self.script.calls.at(sampler)
        alone = len(sampler.args) == 1 and not site.has_splat
        if site.name != _RANDOM_SAMPLER or not alone:
            return None
        given = sampler.args[0].value
        return sampler if self.script.code(given) == self.script.code(dataset) else None

    def _loader_arguments(
        self, loader: cst.Call
    ) -> tuple[cst.BaseExpression, bool, cst.Arg, cst.Call | None]:
        site = self.script.calls.at(loader)
        dataset = site.given("dataset")
        if dataset is None:
            raise ObstacleError(loader, "its dataset is not spelled out")
        owner = self.script.functions.instance_of(dataset.value)
        if owner is not None and any(
            base.endswith("IterableDataset") for base in self.script.functions.bases(owner)
        ):
            raise ObstacleError(dataset, "a DistributedSampler cannot divide an IterableDataset")
        sampler = site.argument("sampler")
        if sampler.state is State.UNKNOWN:
            raise ObstacleError(loader, "its keywords are not spelled out")
        drawn = self._random_sampler(sampler.node, dataset.value)
        if sampler.state is not State.ABSENT and not sampler.equals(None) and drawn is None:
            raise ObstacleError(site.given("sampler") or loader, "it has a sampler of its own")
        if site.argument("batch_sampler").state is not State.ABSENT:
            raise ObstacleError(site.given("batch_sampler") or loader, "it has a batch sampler")
        size = site.given("batch_size")
        if size is None or site.argument("batch_size").literal in (None, 1):
            raise ObstacleError(size or loader, "its batch size cannot be divided by the processes")
        if sampler.state is not State.ABSENT and site.given("sampler") is None:
            raise ObstacleError(loader, "its sampler comes from a dictionary")
        if drawn is not None:
            return dataset.value, True, size, drawn
        shuffle = site.argument("shuffle")
        if shuffle.state is State.ABSENT or shuffle.equals(False):
            return dataset.value, False, size, None
        given = site.given("shuffle")
        if given is not None and self._unless_sampled(given.value):
            return dataset.value, True, size, None
        if not shuffle.equals(True) or given is None:
            raise ObstacleError(given or loader, "whether it shuffles is decided elsewhere")
        return dataset.value, True, size, None

    def _unless_sampled(self, shuffle: cst.BaseExpression) -> bool:
        """Return whether a loader shuffles by `train_sampler is None`, and it is None."""
        return (
            isinstance(shuffle, cst.Comparison)
            and isinstance(shuffle.comparisons[0].operator, cst.Is)
            and self.script.values.value_of(shuffle.left).equals(None)
            and self.script.values.value_of(shuffle.comparisons[0].comparator).equals(None)
        )

    def _epochs(self, batches: Loop) -> cst.For | None:
        loop = self.program.epoch_loop(batches)
        if loop is None:
            home = self.script.scopes.function(batches.node)
            if home is not None and len(self.script.functions.callers(home)) > 1:
                raise ObstacleError(home, "it is run from several places")
            return None
        node = loop.node
        if (
            not isinstance(node, cst.For)
            or not isinstance(node.target, cst.Name)
            or not isinstance(node.body, cst.IndentedBlock)
            or not self.script.values.iteration.counts(node.iter)
        ):
            raise ObstacleError(node, "the epoch loop counts no epochs")
        return node

    # -- network, optimizer, loss ---------------------------------------------

    def _is_network(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is the wrapped network, by its name or as a parameter."""
        if not isinstance(node, cst.Name):
            return False
        binding = self.script.scopes.only(node)
        if isinstance(binding.node, cst.Param):
            given = self.script.functions.given(binding.node)
            return any(isinstance(one, cst.Name) and one.value in self.names for one in given)
        return node.value in self.names

    def _refuse_network(self, wrap: Wrap) -> None:
        for attribute in self.script.tree.all(cst.Attribute):
            if attribute.attr.value in _MODULE_API or not isinstance(attribute.value, cst.Name):
                continue
            behind = self.script.tree.order(attribute) > self.script.tree.order(wrap.call)
            if behind and attribute.value.value == wrap.target.value:
                if self._is_network(attribute.value):
                    raise ObstacleError(attribute, "a wrapped network has it behind `.module` only")
        for mention in (*self.script.tree.all(cst.Attribute), *self.script.tree.all(cst.Name)):
            holder = self.script.tree.parent(mention)
            if self.script.name(mention) == DATA_PARALLEL and isinstance(holder, cst.Comparison):
                raise ObstacleError(holder, "the type of the network is compared")

    def _refuse_optimizers(self, batches: Loop) -> None:
        script = self.script
        made = [
            call
            for call in script.tree.all(cst.Call)
            if script.kind(call) is Kind.OPTIMIZER
            and (script.name(call.func) or "").startswith("torch.optim.")
        ]
        if not made:
            raise ObstacleError(
                batches.node, "the optimizer is made in code that is not visible here"
            )
        for call in made:
            if not call.args:
                raise ObstacleError(call, "what the optimizer steps is not spelled out")
            networks = list(self._networks(call.args[0].value, 4))
            strange = [node for node in networks if not self._is_network(node)]
            if strange:
                raise ObstacleError(call, "the optimizer steps another network, too")
            if not networks:
                raise ObstacleError(
                    call, "whose parameters the optimizer steps is not visible here"
                )

    def _networks(self, node: cst.CSTNode, depth: int) -> Iterator[cst.Name]:
        """Yield the networks in an expression, following its names."""
        if not depth:
            return
        for name in self.script.tree.within(node, cst.Name):
            if self.script.kind(name) is Kind.MODULE:
                yield name
                continue
            for binding in self.script.scopes.reaching(name):
                if binding.value is not None and binding.how in (How.ASSIGN, How.LOOP):
                    yield from self._networks(binding.value, depth - 1)

    def _refuse_losses(self, batches: Loop) -> None:
        script = self.script
        own = list(self.script.functions.run_in(batches.node.body))
        for call in own:
            owner = receiver_of(call)
            if owner is None or method_of(call) in _WITHOUT_GRADIENT:
                continue
            said = script.tree.within(call.func, cst.Attribute)
            inner = any(each.attr.value == "module" for each in said)
            forward = method_of(call) == "forward" and self._is_network(owner)
            if forward or (inner and script.kind(owner) in (Kind.MODULE, Kind.UNKNOWN)):
                raise ObstacleError(
                    call, "it goes past the wrapper, which then shares no gradients"
                )
        criteria = [
            call for call in script.tree.all(cst.Call) if script.kind(call) is Kind.CRITERION
        ]
        for call in (*criteria, *own):
            for name in ("reduction", "size_average"):
                given = script.calls.at(call).given(name)
                if given is not None and not script.values.value_of(given.value).equals("mean"):
                    if not script.values.value_of(given.value).equals(True):
                        raise ObstacleError(given, "gradients are averaged over the processes")
        for value in script.values.kinds.losses.values:
            self._refuse_loss(value)

    def _refuse_loss(self, value: cst.BaseExpression) -> None:
        script = self.script
        values = [value]
        for name in script.tree.within(value, cst.Name):
            values += [
                binding.value
                for binding in script.scopes.reaching(name)
                if binding.how in (How.ASSIGN, How.UNPACKED) and binding.value is not None
            ]
        for each in values:
            if not isinstance(each, cst.Call):
                continue
            if method_of(each) == "sum":
                raise ObstacleError(each, "gradients are averaged over the processes, this sums")
            inner = receiver_of(each) or each.func
            if isinstance(inner, cst.Call):
                inner = inner.func
            if self._is_network(inner):
                raise ObstacleError(
                    each, "the network returns the loss: DataParallel gives one per GPU"
                )

    # -- values that must not differ between processes ------------------------

    def _refuse_draws(self) -> None:
        """Refuse random draws that would split or build the data differently in each process."""
        called = {self.script.name(call.func) for call in self.script.tree.all(cst.Call)}
        for library, draws in _INDEX_DRAWS.items():
            if called & set(_SEEDS[library]):
                continue
            for call in self.script.tree.all(cst.Call):
                if self.script.name(call.func) not in draws or self._allowed_draw(call):
                    continue
                seed = _SEEDS[library][0]
                raise ObstacleError(
                    call, f"each process would draw differently: call `{seed}` first"
                )

    def _allowed_draw(self, call: cst.Call) -> bool:
        if any(arg.keyword is not None and arg.keyword.value in _OWN_SEED for arg in call.args):
            return True
        if self.script.scopes.class_of(call) is not None:
            return True
        return self.script.loops.batch_loop(call) is not None

    def _refuse_batch_size(self, shape: Shape) -> None:
        """Refuse a second use of the batch size that means the batch size of one process."""
        size = shape.batch_size.value
        if isinstance(size, cst.Integer):
            return
        text = self.script.code(size)
        regions = self.script.functions.reached(shape.batches.node.body)
        for kind in (cst.Name, cst.Attribute):
            for use in self.script.tree.all(kind):
                if self.script.code(use) != text or not self.script.scopes.reads(use):
                    continue
                if any(self.script.tree.inside(use, region) for region in regions):
                    if not self._printed(use):
                        raise ObstacleError(use, "the batch size is read in the training loop")
                call = self.script.tree.parent(self.script.tree.parent(use))
                if isinstance(call, cst.Call) and self.script.kind(call) is Kind.MODULE:
                    raise ObstacleError(use, "the network is built for this batch size")

    def _printed(self, node: cst.CSTNode) -> bool:
        return any(
            isinstance(outer, cst.Call) and self.script.name(outer.func) == "builtins.print"
            for outer in self.script.tree.ancestors(node)
        )
