"""Try modules, notebooks and trainings of a folder, each in its own process.

    python benchmarks/tryout.py < JOBS

This is the inner part of `survival.py`. Each line is a job: what to try, in which folder, where it
may write, and for how long; the answer to each is one line of JSON. Every process is forked from
this one, which has imported torch, so that a hundred modules take seconds. Missing packages get
stand-ins.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import importlib
import importlib.util
import json
import os
import random
import re
import runpy
import signal
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from standins import Finder, StandIn, fence

Json = dict[str, Any]
STATEMENT = 5.0
"""CPU seconds for each statement of a notebook."""
BEFOREHAND = ("torchvision", "pandas", "matplotlib.pyplot")
"""Slow imports, made once in advance."""
RUN = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Assign)


class TooLongError(BaseException):
    """Time is up; no `except Exception` may catch this."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TooLongError` after so many CPU seconds of this process."""

    def ring(*_: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def describe(error: BaseException, root: Path) -> str:
    """Return what went wrong, without details that differ between runs."""
    text = f"{type(error).__name__}: {error}".replace(str(root), "")
    text = text.replace(os.environ["HOME"], "")
    return re.sub(r"0x[0-9a-f]+", "0x", text.strip().split("\n")[0])[:300]


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def unbound(tree: ast.Module, namespace: Json) -> list[str]:
    """Return the global names that code reads and nothing binds, and missing parts of modules."""
    read, bound = set(), set(namespace) | set(vars(builtins)) | {"__file__", "__class__"}
    for code in code_objects(compile(tree, "<code>", "exec", dont_inherit=True)):
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read.add(str(step.argval))
            elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                bound.add(str(step.argval))
    return sorted(read - bound) + missing_parts(tree, namespace)


def missing_parts(tree: ast.Module, namespace: Json) -> list[str]:
    """Return each `module.name` in the code that the module does not have."""
    missing = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node).split(".")
            found: Any = namespace.get(dotted[0])
            for at, name in enumerate(dotted[1:], start=2):
                if type(found) is not types.ModuleType or not name.isidentifier():
                    break
                try:
                    found = getattr(found, name)
                except AttributeError:
                    missing.add(".".join(dotted[:at]))
                    break
    return sorted(missing)


def loaded(root: Path) -> list[str]:
    """Return the project files that are imported."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    own = (Path(file) for file in files if isinstance(file, str))
    return sorted({str(file.relative_to(root)) for file in own if file.is_relative_to(root)})


def place(path: Path, root: Path) -> str:
    """Make the neighbors of a file importable as for `python FILE`, and return its module name."""
    top, parts = path.parent, [path.stem]
    while top != root and (top / "__init__.py").exists():
        parts.insert(0, top.name)
        top = top.parent
    above = [folder for folder in path.parents if folder == root or root in folder.parents]
    sys.path[:0] = [str(folder) for folder in dict.fromkeys((top, *above))]
    return ".".join(parts[:-1] if path.name == "__init__.py" and len(parts) > 1 else parts)


def import_file(path: Path, name: str) -> types.ModuleType:
    """Import a file as part of its package, or alone."""
    if path.name == "__init__.py" or name != path.stem:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name if name not in sys.modules else f"_{name}"] = module
    spec.loader.exec_module(module)
    return module


def try_module(path: Path, root: Path, limit: float) -> Json:
    """Import a module, then look for unbound names in its functions."""
    tree = ast.parse(path.read_bytes())
    outcome: Json = {"state": "ok", "errors": []}
    namespace: Json = {}
    try:
        with at_most(limit):
            namespace = vars(import_file(path, place(path, root)))
    except TooLongError:
        outcome["state"] = "endless"
    except BaseException as error:
        outcome |= {"state": "failed", "errors": [describe(error, root)]}
    stars = any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in tree.body
    )
    outcome["unbound"] = unbound(tree, namespace) if namespace or not stars else []
    return outcome


def python_of(cell: Json) -> str:
    """Return the Python of a cell, without magics."""
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    if text.lstrip().startswith("%%"):
        return ""
    return re.sub(r"(?m)^(\s*)[%!?].*$", r"\1pass", text)


def binds(statement: ast.stmt) -> set[str]:
    """Return the names that a statement would bind."""
    nodes = list(ast.walk(statement))
    names = {it.id for it in nodes if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
    return names | {it.name for it in nodes if isinstance(it, (ast.FunctionDef, ast.ClassDef))}


def try_notebook(path: Path, root: Path, limit: float) -> Json:
    """Run imports, definitions and assignments of a notebook; look for unbound names in the rest.

    Names that are missing because an earlier statement was skipped or failed are no errors.
    """
    cells = json.loads(path.read_bytes()).get("cells", ())
    texts = [python_of(cell) for cell in cells if cell["cell_type"] == "code"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = vars(module)
    namespace |= {name: StandIn(name) for name in ("get_ipython", "display")}
    place(path, root)
    errors: list[str] = []
    missing: list[str] = []
    parsed: list[ast.stmt] = []
    lost: set[str] = set()
    ends = time.process_time() + 4 * limit
    for at, text in enumerate(texts):
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            errors.append(f"cell {at}: {describe(error, root)}")
            continue
        parsed += tree.body
        for statement in tree.body:
            left = ends - time.process_time()
            if left <= 0:
                return {"state": "endless", "errors": errors, "unbound": missing}
            if not isinstance(statement, (*RUN, ast.AnnAssign, ast.AugAssign)):
                wanting = unbound(ast.Module([statement], []), namespace)
                missing += [f"cell {at}: {name}" for name in wanting if name not in lost]
                lost |= binds(statement)
                continue
            try:
                with at_most(min(STATEMENT, left)):
                    code = compile(ast.Module([statement], []), str(path), "exec")
                    exec(code, namespace)
            except BaseException as error:
                lost |= binds(statement)
                known = isinstance(error, NameError) and error.name in lost
                if not known and not isinstance(error, TooLongError):
                    errors.append(f"cell {at}: {describe(error, root)}")
    whole = unbound(ast.Module(parsed, []), namespace)
    return {"state": "ok", "errors": errors, "unbound": missing + whole}


def watch_training(record: Json) -> None:
    """Record the loss of every `backward` and a sum of the parameters after every step."""
    torch = importlib.import_module("torch")
    inner = torch.autograd.backward

    def backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
        first = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        record["losses"].append(sum(float(each.detach().double().sum()) for each in first))
        return inner(tensors, *arguments, **options)

    def stepped(optimizer: Any, *_: object) -> None:
        groups = optimizer.param_groups
        parameters = (each for group in groups for each in group["params"])
        record["sums"].append(sum(float(each.detach().double().abs().sum()) for each in parameters))

    torch.autograd.backward = backward
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(stepped)


def try_training(path: Path, root: Path, job: Json) -> Json:
    """Run a script as `python FILE` does, and record its training and its output."""
    record: Json = {"losses": [], "sums": []}
    watch_training(record)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path), *job["arguments"]]
    outcome: Json = {"state": "ok", "errors": [], "unbound": []}
    try:
        with at_most(job["limit"]):
            exec(compile(job["prelude"], "<prelude>", "exec"), {"__name__": "prelude"})
            runpy.run_path(str(path), run_name="__main__")
    except TooLongError:
        outcome["state"] = "endless"
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            outcome |= {"state": "failed", "errors": [describe(error, root)]}
    return outcome | record


def make_alike() -> None:
    """Seed every random stream, and stay on the CPU whatever the script requests."""
    torch = importlib.import_module("torch")
    random.seed(0)
    torch.manual_seed(0)
    importlib.import_module("numpy").random.seed(0)
    for owner in (torch.Tensor, torch.nn.Module):
        owner.cuda = lambda self, *_, **__: self

    class Stay(importlib.import_module("torch.overrides").TorchFunctionMode):  # type: ignore[misc]
        """Reads every device as the CPU."""

        def __torch_function__(
            self, function: Any, _: Any, given: Any = (), named: Any = None
        ) -> Any:
            named = {name: here(value) for name, value in (named or {}).items()}
            return function(*map(here, given), **named)

    def here(value: Any) -> Any:
        if isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda":
            return torch.device("cpu")
        return value

    Stay().__enter__()


def perform(job: Json, scratch: Path) -> Json:
    """Run one job in this process, which ends after it."""
    root, shared = Path(job["root"]), scratch.parent / "matplotlib"
    path = root / job["path"]
    os.chdir(scratch if job["kind"] == "module" else root / job.get("folder", path.parent))
    os.environ |= {"HOME": str(scratch), "TMPDIR": str(scratch), "MPLCONFIGDIR": str(shared)}
    tempfile.tempdir = str(scratch)
    sys.argv = [str(path)]
    sys.meta_path.append(Finder(root))
    warnings.simplefilter("ignore")
    make_alike()
    fence(scratch, shared, root.parent if job["kind"] == "training" else root)
    if job["kind"] == "training":
        outcome = try_training(path, root, job)
    else:
        attempt = try_module if job["kind"] == "module" else try_notebook
        outcome = attempt(path, root, float(job["limit"]))
    return outcome | {"loaded": loaded(root)}


def in_child(job: Json, scratch: Path, answer: Path) -> None:
    """Run one job in a forked process, and write down the result."""
    os.setsid()
    out = os.open(scratch / "printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, target in ((nothing, 0), (out, 1), (nothing, 2)):
        os.dup2(source, target)
    try:
        outcome = perform(job, scratch)
    except Exception as error:
        outcome = {"state": "failed", "errors": [describe(error, Path(job["root"]))]}
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    text = json.dumps({"unbound": [], "loaded": [], **outcome})
    draft = answer.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.rename(answer)


def in_a_process(job: Json) -> Json:
    """Run one job in a new process, which is ended when it takes too long."""
    scratch = Path(job["scratch"])
    scratch.mkdir(parents=True)
    (scratch.parent / "matplotlib").mkdir(exist_ok=True)
    answer = scratch / "answer.json"
    ends = time.monotonic() + 6 * float(job["limit"]) + 10
    process = os.fork()
    if not process:
        try:
            in_child(job, scratch, answer)
        finally:
            os._exit(0)
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > ends:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    outcome: Json = {"state": "endless", "errors": [], "unbound": [], "loaded": []}
    if answer.exists():
        outcome = json.loads(answer.read_bytes())
    if job["kind"] == "training":
        outcome["printed"] = (scratch / "printed").read_text(errors="replace").splitlines()
    return outcome


def main() -> None:
    """Run jobs from standard input, one after the other."""
    importlib.import_module("torch").set_num_threads(1)
    for name in BEFOREHAND:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(in_a_process(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
