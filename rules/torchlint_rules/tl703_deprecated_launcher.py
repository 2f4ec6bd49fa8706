# torchlint: ignore-file[TL703] what it looks for stands in its page and its examples
"""TL703: what only the deprecated `torch.distributed.launch` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Edits, Finding, Fix, Rule, Safety, Script, Span, regex

_UNDERSCORE: Final = "--local_rank"
_DASH: Final = "--local-rank"
_VARIABLE: Final = "LOCAL_RANK"
_LAUNCH: Final = "torch.distributed.launch"
_COMMAND: Final = regex(r"-m\s+(torch\.distributed\.launch)(?![\w.])")
_TITLE: Final = "Read LOCAL_RANK from the environment"


class DeprecatedLauncher(Rule):
    """
    ## What it does
    Flags an argument parser that takes `--local_rank` and never looks at the environment variable
    LOCAL_RANK, and commands that start `python -m torch.distributed.launch`.

    ## Why it is slow
    `torch.distributed.launch` is deprecated, and torchrun does not pass `--local_rank`: it sets
    LOCAL_RANK. A script that only knows the argument runs all its processes on the first GPU of
    each machine there, or runs out of memory on it. And since torch 2.0 the old launcher passes
    `--local-rank`, which a parser for `--local_rank` refuses.

    ## When not to
    DeepSpeed's launcher does pass `--local_rank`; scripts that name DeepSpeed are left alone. So
    are those that read LOCAL_RANK anywhere, or give the rank a value themselves.

    ## Fix safety
    Exact. Without LOCAL_RANK the default stays what it was, and a rank on the command line counts
    for more than the environment. Commands in strings are reported only.
    """

    code = "TL703"
    name = "deprecated-launcher"
    summary = "made for `torch.distributed.launch`, which torchrun replaces"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S1",)
    needs = ("local_rank", "local-rank", "torch.distributed.launch")
    since = (1, 10)

    invalid = {
        "a default, the old spelling": """
            + import os
              import argparse
              import torch
              parser = argparse.ArgumentParser()
            - parser.add_argument("--local_rank", default=0, type=int)
            + parser.add_argument("--local_rank", "--local-rank", default=int(os.environ.get("LOCAL_RANK", 0)), type=int)
              args = parser.parse_args()
            """,
        "no GPU chosen by default, one argument a line": """
              import argparse
              import os
              import torch
              def parse():
                  parser = argparse.ArgumentParser()
                  group = parser.add_argument_group("distributed")
                  group.add_argument(
            -         '--local_rank',
            +         '--local_rank', '--local-rank',
                      type=int,
            -         default=-1,  # not distributed
            +         default=int(os.environ.get("LOCAL_RANK", -1)),  # not distributed
                      help="set by the launcher",
                  )
            """,
        "both spellings, no default": """
              import argparse
              import os
              import torch
              parser = argparse.ArgumentParser()
            - parser.add_argument("--local-rank", "--local_rank", type=int)
            + parser.add_argument("--local-rank", "--local_rank", type=int, default=os.environ.get("LOCAL_RANK"))
            """,
        "None by default, text by default": """
              import argparse
              import os
              import torch
              parser = argparse.ArgumentParser()
            - parser.add_argument("--local-rank", type=int, default=None)
            + parser.add_argument("--local-rank", type=int, default=os.environ.get("LOCAL_RANK"))
              other = argparse.ArgumentParser()
            - other.add_argument("--local-rank", default="0")
            + other.add_argument("--local-rank", default=os.environ.get("LOCAL_RANK", "0"))
            """,
        "required, so that it does not run under torchrun at all": """
              import argparse
              import os
              import torch
              parser = argparse.ArgumentParser()
            - parser.add_argument("--local-rank", type=int, required=True, help="local rank")
            + parser.add_argument("--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)), help="local rank")
            """,
        "a default that is decided elsewhere: reported, left alone": """
              import argparse
              import torch
              parser = argparse.ArgumentParser()
            ! parser.add_argument("--local_rank", type=int, default=config.local_rank)
            """,
        "options that come from elsewhere: reported, left alone": """
              import argparse
              import torch
              parser = argparse.ArgumentParser()
            ! parser.add_argument("--local_rank", **options)
            """,
        "how to start it, in the page of the script: reported, left alone": '''
            ! """Train, with python -m torch.distributed.launch --nproc_per_node=4 train.py"""
              import torch
            ''',
        "a command in parts: reported, left alone": """
              import subprocess
              import sys
              import torch
              subprocess.run([
                  sys.executable,
                  "-m",
            !     "torch.distributed.launch",
                  "train.py",
              ])
            """,
        "a command with values put in: reported, left alone": """
              import os
              import torch
            ! os.system(f"python -m torch.distributed.launch --nproc_per_node={n} train.py")
            """,
    }
    valid = {
        "the environment is the default": """
            import argparse
            import os
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", default=os.getenv("LOCAL_RANK", 0), type=int)
            """,
        "the environment is asked afterwards": """
            import argparse
            import os
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", default=-1, type=int)
            args = parser.parse_args()
            if "LOCAL_RANK" in os.environ:
                args.local_rank = int(os.environ["LOCAL_RANK"])
            """,
        "the script starts its processes itself and numbers them": """
            import argparse
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", default=0, type=int)
            def worker(index, args):
                args.local_rank = index
            torch.multiprocessing.spawn(worker, (parser.parse_args(),), nprocs=2)
            """,
        "the launcher of DeepSpeed passes it": """
            import argparse
            import deepspeed
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", default=-1, type=int)
            parser = deepspeed.add_config_arguments(parser)
            """,
        "a word about the launcher, and a module that begins alike": '''
            """Processes may be started by torch.distributed.launch and its like."""
            import torch
            from torch.distributed.launcher.api import LaunchConfig
            COMMAND = "python -m torch.distributed.launcher"
            ''',
        "torchrun": '''
            """Run with: torchrun --nproc-per-node 4 train.py"""
            import torch
            ''',
        "only for a torch whose launcher passes it": """
            import argparse
            import torch
            parser = argparse.ArgumentParser()
            if int(torch.__version__.split(".")[0]) == 1:
                parser.add_argument("--local_rank", type=int, required=True)
            """,
        "a string that stands for a comment": """
            import torch
            class Block(torch.nn.Module):
                def forward(self, x):
                    if self.split:
                        '''The first norm is not used.
                        cmd: `python -m torch.distributed.launch ...`
                        '''
                        return x
            """,
        "another argument": """
            import argparse
            import torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank_offset", default=0, type=int)
            parser.add_argument("--rank", default=0, type=int)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag arguments and commands that are for the old launcher."""
        yield from self._commands(script)
        if "deepspeed" in script.source.text.lower() or _is_known(script):
            return
        for call in script.method_calls("add_argument"):
            option = next((o for o in _options(call) if _spelled(o) in (_UNDERSCORE, _DASH)), None)
            if option is not None and not _by_version(script, call):
                site = script.call(call)
                edits = _edits(script, site)
                fix = Fix.exact(_TITLE, edits) if edits else None
                message = _message(script, site, _spelled(option))
                yield Finding(self.code, script.span(option), message, fix)

    def _commands(self, script: Script) -> Iterator[Finding]:
        texts: list[cst.SimpleString | cst.FormattedStringText]
        texts = [*script.all(cst.SimpleString), *script.all(cst.FormattedStringText)]
        for text in texts:
            at = _command(script, text)
            if at is not None:
                start = script.span(text).start + at
                yield Finding(
                    self.code,
                    Span(start, start + len(_LAUNCH)),
                    f"`python -m {_LAUNCH}` is deprecated: start it by `torchrun`, and read "
                    f"{_VARIABLE} from the environment",
                )


def _command(script: Script, text: cst.SimpleString | cst.FormattedStringText) -> int | None:
    """Give where a text names the launcher as a command does, None where it does not."""
    if _LAUNCH not in text.value or _is_comment(script, text):
        return None
    found = _COMMAND.search(script.code(text))
    if found is not None:
        return found.start(1)
    element = script.parent(text)
    command = script.parent(element) if isinstance(element, cst.Element) else None
    if not isinstance(command, cst.List) or not isinstance(element, cst.Element):
        return None
    if not isinstance(text, cst.SimpleString) or _spelled(text) != _LAUNCH:
        return None
    at = list(command.elements).index(element)
    before = command.elements[at - 1].value if at else None
    says = isinstance(before, cst.SimpleString) and _spelled(before) == "-m"
    return script.code(text).index(_LAUNCH) if says else None


def _is_comment(script: Script, text: cst.CSTNode) -> bool:
    """Whether a string is a statement of its own inside a branch or a loop, a comment therefore."""
    line = script.parent(text)
    block = script.parent(line) if isinstance(line, cst.Expr) else None
    if isinstance(block, cst.SimpleStatementLine):
        block = script.parent(block)
    owner = script.parent(block) if block is not None else None
    return owner is not None and not isinstance(owner, (cst.FunctionDef, cst.ClassDef))


def _is_known(script: Script) -> bool:
    """Whether the file asks the environment for the rank, or gives it a value itself."""
    if any(_spelled(text) == _VARIABLE for text in script.all(cst.SimpleString)):
        return True
    return any(
        isinstance(each.target, cst.Attribute) and each.target.attr.value == "local_rank"
        for line in script.all(cst.Assign)
        for each in line.targets
    )


def _by_version(script: Script, call: cst.Call) -> bool:
    """Whether a test of torch's version decides that an argument is there."""
    return any("version" in script.code(test).lower() for test in script.tests_around(call))


def _spelled(text: cst.SimpleString) -> str:
    return text.value.strip("'\"")


def _options(call: cst.Call) -> list[cst.SimpleString]:
    return [
        arg.value
        for arg in call.args
        if arg.keyword is None and isinstance(arg.value, cst.SimpleString)
    ]


def _message(script: Script, site: CallSite, option: str) -> str:
    default = site.given("default")
    then = ""
    if site.argument("required").equals(True):
        then = ": under torchrun the script does not start"
    elif _is_read(script):
        kept = script.code(default.value) if default else "None"
        then = f": under torchrun every process keeps {kept}"
    elif not _has(site.node, _DASH) and _is_strict(script):
        then = f", and since torch 2.0 it writes `{_DASH}`, which is refused here"
    return (
        f"`{option}` is passed by `{_LAUNCH}` alone, which is deprecated{then}; "
        f"read {_VARIABLE} from the environment"
    )


def _is_read(script: Script) -> bool:
    """Whether the file uses the rank that it was told."""
    return any(node.attr.value == "local_rank" for node in script.all(cst.Attribute))


def _is_strict(script: Script) -> bool:
    """Whether the parsers of the file refuse what they do not know."""
    lenient = next(script.method_calls("parse_known_args"), None) is not None
    return not lenient or next(script.method_calls("parse_args"), None) is not None


def _has(call: cst.Call, option: str) -> bool:
    return any(_spelled(each) == option for each in _options(call))


def _edits(script: Script, site: CallSite) -> Edits | None:
    """Take the default from the environment, and both spellings; None where that is unsure."""
    default, required = site.given("default"), site.given("required")
    imported = script.rewrite.importing("os")
    if site.has_splat or imported is None:
        return None
    word, imports = imported
    read = f'{word}.environ.get("{_VARIABLE}"'
    if default is not None:
        value = _from_environment(site, read)
        if value is None:
            return None
        edits = script.rewrite.replace(default.value, value)
    elif required is not None and site.argument("required").equals(True):
        edits = script.rewrite.replace(required, f"default=int({read}, 0))")
    else:
        edits = script.rewrite.with_keyword(site.node, "default", f"{read})")
    return (*imports, *_spellings(script, site.node), *edits)


def _from_environment(site: CallSite, read: str) -> str | None:
    """Write a default that the environment may change; None for one that is no literal."""
    default = site.given("default")
    value = site.argument("default")
    if default is None or value.node is not default.value or not value.is_literal:
        return None
    literal = value.literal
    if literal is None:
        return f"{read})"
    if isinstance(literal, str):
        return f"{read}, {site.script.code(default.value)})"
    if type(literal) is int:
        return f"int({read}, {site.script.code(default.value)}))"
    return None


def _spellings(script: Script, call: cst.Call) -> Edits:
    """Take the option with a dash as well, which the launcher of torch 2 passes."""
    if _has(call, _DASH):
        return ()
    text = next(each for each in _options(call) if _spelled(each) == _UNDERSCORE)
    quoted = text.value.replace(_UNDERSCORE, _DASH)
    return script.rewrite.insert(script.span(text).end, f", {quoted}")
