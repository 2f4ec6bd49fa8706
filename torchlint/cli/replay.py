"""Replaying the output of an earlier run of the same command if none of its inputs changed.

A replayed check imports only this: comparing the state of every file is faster than importing
click.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from torchlint import __version__
from torchlint.timestamps import TIMESTAMP_MARGIN

CACHE: Final = ".torchlint_cache"
"""The default cache folder."""
SUFFIX: Final = ".printed"
"""The suffix of the files that this module writes."""
MOST_BYTES: Final = 16_000_000
"""The maximum size of such a file."""

_BEGAN: Final = time.time_ns()
_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_GONE: Final = (0, 0, 0, 0, 0)
_POSITIVE: Final = (1 << 63) - 1
_OPTION: Final = "--cache-dir"
_VARIABLES: Final = frozenset(
    (
        "NO_COLOR FORCE_COLOR TERM COLUMNS CI_COMMIT_SHA CI_PROJECT_DIR CI_PROJECT_URL "
        "GITHUB_REPOSITORY GITHUB_SERVER_URL GITHUB_SHA GITHUB_WORKSPACE PYTHONUTF8"
    ).split()
)
_OWN_VARIABLES: Final = "TORCHLINT_"
"""The environment variables that a report depends on, with those that begin so."""


class Output(NamedTuple):
    """The output of a run, and its exit code."""

    text: str
    code: int


class Inputs(NamedTuple):
    """The files and folders that a run reads, and those of which only the existence matters.

    The first is the folder of torchlint itself. Its timestamps differ on every machine, so a record
    that came with a foreign repository never matches.
    """

    read: tuple[str, ...]
    there: tuple[str, ...]

    @classmethod
    def over(cls, read: Iterable[str], there: Iterable[str]) -> Inputs:
        """Return the inputs of a run, each name once."""
        return cls(tuple(dict.fromkeys((_OURS, *read))), tuple(dict.fromkeys(there)))

    def state(self) -> array[int]:
        """Return size, timestamps and inode of each; zeros if it does not exist."""
        state = array("q")
        look, extend = os.stat, state.extend
        for name in self.read:
            try:
                found = look(name)
            except (OSError, ValueError):
                extend(_GONE)
                continue
            extend(
                (
                    found.st_size,
                    found.st_mtime_ns,
                    found.st_ctime_ns,
                    found.st_ino & _POSITIVE,
                    found.st_dev & _POSITIVE,
                )
            )
        extend(map(os.path.lexists, self.there))
        return state

    def is_old_enough(self, state: array[int]) -> bool:
        """Return whether all timestamps are old enough that another change would show."""
        times = state[: len(self.read) * len(_GONE)]
        return max(*times[1 :: len(_GONE)], *times[2 :: len(_GONE)]) < _BEGAN - TIMESTAMP_MARGIN


class Command(NamedTuple):
    """A command line with its context: folder, terminal, environment and version."""

    arguments: tuple[str, ...]
    reader: str

    @classmethod
    def given(cls) -> Command | None:
        """Return the command line of this process, None if it is not a `check`."""
        arguments = tuple(sys.argv[1:])
        if arguments[:1] != ("check",):
            return None
        try:
            here = os.getcwd()  # noqa: PTH109
        except OSError:
            return None
        columns = None
        if sys.stdout.isatty():
            columns = os.get_terminal_size(sys.stdout.fileno()).columns
        variables = sorted(
            (name, value)
            for name, value in os.environ.items()
            if name in _VARIABLES or name.startswith(_OWN_VARIABLES)
        )
        program = (__version__, sys.version, sys.flags.utf8_mode, sys.path)
        return cls(arguments, repr((here, columns, sys.stdout.encoding, variables, program)))

    @property
    def folder(self) -> str:
        """The cache folder according to the arguments."""
        words = iter(self.arguments)
        folder = CACHE
        for word in words:
            if word == _OPTION:
                folder = next(words, folder)
            elif word.startswith(f"{_OPTION}="):
                folder = word[len(_OPTION) + 1 :]
        return folder

    def replay(self, folder: str) -> Output | None:
        """Return the recorded output, None if there is none or an input changed."""
        data = _read(os.path.join(folder, self.name))  # noqa: PTH118
        fields = _fields(data) if data else None
        if fields is None or fields[0] != self._key:
            return None
        _, code, read, there, state, text = fields
        inputs = Inputs(_names(read), _names(there))
        if inputs.read[:1] != (_OURS,) or inputs.state().tobytes() != state:
            return None
        try:
            return Output(text.decode("utf-8", "surrogatepass"), int(code))
        except ValueError:
            return None

    def record(self, printed: Output, inputs: Inputs, state: array[int]) -> bytes:
        """Return the record of a run, which `replay` reads."""
        text = printed.text.encode("utf-8", "surrogatepass")
        names = [os.fsencode("\0".join(names)) for names in inputs]
        fields = (self._key, str(printed.code).encode(), *names, state.tobytes(), text)
        body = b"".join(fields)
        head = " ".join(map(str, (zlib.crc32(body), *map(len, fields))))
        return head.encode() + b"\n" + body

    @property
    def name(self) -> str:
        """The name of the file for the output of this command."""
        return f"{zlib.crc32(self._key):08x}{SUFFIX}"

    @property
    def _key(self) -> bytes:
        return repr((self.arguments, self.reader)).encode("utf-8", "surrogatepass")


def _read(file: str) -> bytes:
    """Return the content of a record, empty if it is missing or not a regular file."""
    try:
        state = os.stat(file)  # noqa: PTH116
        if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            return b""
        with open(file, "rb") as stream:  # noqa: PTH123
            return stream.read()
    except (OSError, ValueError):
        return b""


def _fields(data: bytes) -> Sequence[bytes] | None:
    """Return the fields of a record, None if it is damaged."""
    head, _, body = data.partition(b"\n")
    try:
        check, *lengths = map(int, head.split())
    except ValueError:
        return None
    if len(lengths) != 6 or min(lengths) < 0 or check != zlib.crc32(body):
        return None
    fields = []
    start = 0
    for length in lengths:
        fields.append(body[start : start + length])
        start += length
    return fields if start == len(body) else None


def _names(joined: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(joined).split("\0")) if joined else ()
