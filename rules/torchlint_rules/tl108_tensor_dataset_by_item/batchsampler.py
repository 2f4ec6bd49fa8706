"""Fixes that make a loader index whole batches instead of collating single items."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Edits, Loader, Script

_MODULE: Final = "torch.utils.data"
_REPLACED: Final = ("shuffle", "sampler", "drop_last")
_WORKERS: Final = "num_workers"
_OF_WORKERS: Final = (
    "persistent_workers prefetch_factor worker_init_fn timeout multiprocessing_context".split()
)


def whole_batches(script: Script, loader: Loader, dataset: cst.BaseExpression) -> Edits | None:
    """Return the edits that make a loader index whole batches, None if they are not possible."""
    size = loader.given("batch_size")
    if (
        size is None
        or loader.has_splat
        or any(True for _ in script.calls.of("torch.nn.DataParallel"))
    ):
        return None
    plain = [arg for arg in loader.node.args if arg.keyword is None]
    if len(plain) > 3 or (len(plain) == 3 and loader.node.args[2] is not plain[2]):
        return None
    named = _named(script, loader, dataset)
    words = _words(script, loader)
    if named is None or words is None:
        return None
    (name, naming), ((batch, order), importing) = named, words
    dropped = loader.given("drop_last")
    drop = script.code(dropped.value) if dropped is not None else "False"
    sampler = f"{batch}({order.format(name)}, {script.code(size.value)}, drop_last={drop})"
    arguments = _arguments(script, loader, size, sampler)
    return (*naming, *importing, *arguments) if arguments is not None else None


def _workers(loader: Loader) -> list[cst.Arg]:
    """Return the literal number of workers if no other argument depends on workers."""
    given = loader.given(_WORKERS)
    if given is None or not isinstance(given.value, cst.Integer):
        return []
    return [] if any(loader.given(name) for name in _OF_WORKERS) else [given]


def _named(script: Script, loader: Loader, dataset: cst.BaseExpression) -> tuple[str, Edits] | None:
    """Return a name for a dataset, and the edits that define it if it has none."""
    if isinstance(dataset, (cst.Name, cst.Attribute)):
        return script.code(dataset), ()
    statement = script.tree.statement(loader.node)
    holder = script.tree.parent(loader.node)
    first = isinstance(holder, (cst.Assign, cst.Return)) or (
        isinstance(holder, cst.For) and holder.iter is loader.node
    )
    if not first or not script.edits.stands_alone(statement):
        return None
    label = loader.label.strip("`")
    stem = label.removesuffix("loader").removesuffix("data").removesuffix("_")
    fits = label != stem and (stem == "" or stem.isidentifier())
    name = f"{stem}_dataset" if fits and stem else "dataset"
    if script.tree.spelled(name):
        return None
    return name, (
        *script.edits.before(statement, f"{name} = {script.code(dataset)}"),
        *script.edits.replace(dataset, name),
    )


def _words(script: Script, loader: Loader) -> tuple[tuple[str, str], Edits] | None:
    """Return the code for a BatchSampler and its sampler (`{}` is the dataset)."""
    own = loader.given("sampler")
    has_own = own is not None and not loader.argument("sampler").equals(None)
    shuffle = loader.given("shuffle")
    names = ["BatchSampler"]
    said = script.code(shuffle.value) if shuffle is not None else "False"
    if not has_own and said != "True":
        names.append("SequentialSampler")
    if not has_own and said != "False":
        names.append("RandomSampler")
    func = loader.node.func
    prefix = script.code(loader.receiver) if loader.method else ""
    if prefix and script.name(func) == f"{_MODULE}.DataLoader":
        found: tuple[tuple[str, ...], Edits] | None = (
            tuple(f"{prefix}.{name}" for name in names),
            (),
        )
    else:
        found = script.edits.importing_names(_MODULE, *names, at=loader.node)
    if found is None:
        return None
    word = dict(zip(names, found[0], strict=True))
    generator = loader.given("generator")
    passed = f", generator={script.code(generator.value)}" if generator else ""
    if own is not None and has_own:
        order = script.code(own.value).replace("{", "{{").replace("}", "}}")
    elif len(names) == 3 and shuffle is not None:
        test = script.code(shuffle.value)
        shuffled = f"{word['RandomSampler']}({{0}}{passed})"
        order = f"{shuffled} if {test} else {word['SequentialSampler']}({{0}})"
    elif "RandomSampler" in word:
        order = f"{word['RandomSampler']}({{0}}{passed})"
    else:
        order = f"{word['SequentialSampler']}({{0}})"
    return (word["BatchSampler"], order), found[1]


def _arguments(script: Script, loader: Loader, size: cst.Arg, sampler: str) -> Edits | None:
    """Return the edits of the arguments: add a sampler, drop the ones it replaces."""
    given = (loader.given(name) for name in _REPLACED)
    gone = [*filter(None, given), *_workers(loader)]
    removed = script.edits.without_arguments(loader.node, gone)
    if removed is None:
        return None
    added = script.edits.with_keyword(loader.node, "sampler", sampler)
    return (*script.edits.replace(size.value, "None"), *removed, *added)
