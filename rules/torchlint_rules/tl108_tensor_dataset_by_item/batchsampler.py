"""Fixes that make a loader index whole batches instead of collating single items."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Edits, Loader, Script

_MODULE: Final = "torch.utils.data"
_WIDTH: Final = 100
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
    sampler = f"sampler={batch}({order.format(name)}, {script.code(size.value)}, drop_last={drop})"
    gone = [dropped] if dropped is not None else []
    return (
        *naming,
        *importing,
        *_arguments(script, loader, size, sampler, [*gone, *_workers(loader)]),
    )


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


def _arguments(
    script: Script, loader: Loader, size: cst.Arg, sampler: str, gone: list[cst.Arg]
) -> Edits:
    """Return the edits of the arguments: add a sampler, drop the ones it replaces."""
    shuffle, own = loader.given("shuffle"), loader.given("sampler")
    place = own or shuffle
    if own is not None and shuffle is not None:
        gone = [*gone, shuffle]
    edits: Edits = ()
    for arg in gone:
        edits = (*edits, *_without(script, loader.node, arg))
    start = script.span(size).start
    rewrite = script.edits
    column = _column(script, loader, place or size, sampler, [*gone, *([place] if place else [])])
    sampler = _folded(column, sampler)
    arguments = [arg for arg in loader.node.args if arg not in gone]
    if column:
        edits = (*edits, *_next_line(script, arguments, place or size, column))
    if place is None:
        alone = not script.tree.source.text[rewrite.line_start(start) : start].strip()
        line = f"{rewrite.newline}{rewrite.indent_of(size)}" if alone else " "
        gap = column or line
        return (*edits, *rewrite.replace(size.value, f"None,{gap}{sampler}"))
    at = list(loader.node.args).index(place)
    first, last = script.span(place).start, script.span(place.value).end
    if column and at:
        before = script.span(loader.node.args[at - 1].value).end
        moved = rewrite.delete(before, last), rewrite.insert(last, f",{column}{sampler}")
        made: Edits = tuple(each for edit in moved for each in edit)
    else:
        made = (*rewrite.delete(first, last), *rewrite.insert(last, sampler))
    return (*edits, *rewrite.replace(size.value, "None"), *made)


def _next_line(script: Script, arguments: list[cst.Arg], place: cst.Arg, column: str) -> Edits:
    """Start the line after a multi-line sampler with the following text."""
    at = arguments.index(place) + 1
    if at == len(arguments):
        return ()
    end, start = script.span(place.value).end, script.span(arguments[at]).start
    between = script.tree.source.text[end:start]
    if between.strip() != "," or "\n" in between:
        return ()
    comma = end + between.index(",") + 1
    return (*script.edits.delete(comma, start), *script.edits.insert(start, column))


def _without(script: Script, call: cst.Call, arg: cst.Arg) -> Edits:
    at = list(call.args).index(arg)
    if at:
        before = script.span(call.args[at - 1].value).end
        if "#" not in script.tree.source.text[before : script.span(arg).start]:
            return script.edits.delete(before, script.span(arg.value).end)
    return script.edits.without_argument(call, arg)


def _column(
    script: Script, loader: Loader, place: cst.Arg, sampler: str, gone: list[cst.Arg]
) -> str:
    """Return a line break before the sampler if the line of `place` would become too long."""
    rewrite = script.edits
    starts = [script.span(arg).start for arg in loader.node.args]
    line = rewrite.line_start(script.span(place).start)
    first = next(start for start in starts if rewrite.line_start(start) == line)
    width = rewrite.line_end(first) - line + len(sampler)
    for arg, start in zip(loader.node.args, starts, strict=True):
        if rewrite.line_start(start) == line:
            if arg in gone:
                width -= script.span(arg.value).end - start + (0 if arg is place else 2)
            elif isinstance(arg.value, cst.Call) and arg is loader.given("dataset"):
                width -= len(script.code(arg.value)) - len("train_dataset")
    if width <= _WIDTH or (first == script.span(place).start and place in gone):
        return ""
    head = script.tree.source.text[line:first]
    white = head[: len(head) - len(head.lstrip())]
    return rewrite.newline + (white if "\t" in head else " " * len(head))


def _folded(column: str, sampler: str) -> str:
    """Break a sampler after its first argument if it is too long for one line."""
    if not column or len(column) + len(sampler) <= _WIDTH or "\t" in column:
        return sampler
    head, _, tail = sampler.rpartition(", drop_last=")
    order, _, size = head.rpartition(", ")
    indent = column + " " * (sampler.index("(") + 1)
    return f"{order},{indent}{size}, drop_last={tail}"
