"""What the same command printed before, while everything that it looked at is as it was.

This is all that a repeated check imports: a look at the state of every file takes less than click.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from torchlint import __version__
from torchlint.record import Record
from torchlint.settled import SETTLED

__all__ = ["CACHE", "MOST_BYTES", "SUFFIX", "Command", "Printed", "Sight"]

CACHE: Final = ".torchlint_cache"
"""The folder of what is kept, unless another is named."""
SUFFIX: Final = ".printed"
"""The end of the names of the files of this module."""
MOST_BYTES: Final = 16_000_000
"""How long such a file is at most."""

_BEGAN: Final = time.time_ns()
_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_GONE: Final = (0, 0, 0, 0, 0)
_POSITIVE: Final = (1 << 63) - 1
_OPTION: Final = "--cache-dir"
_VARIABLES: Final = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "CI_PROJECT_DIR", "PYTHONUTF8")
"""The variables of the environment on which a report depends."""


class Printed(Record):
    """What a run printed, and its exit code."""

    text: str
    code: int


class Sight(Record):
    """What a run looks at: the files and folders that it reads, and those that need but exist.

    The first is the folder of torchlint itself. Its times are set by the system at installation, so
    a record that came with somebody else's repository is never the one that is looked for.
    """

    read: tuple[str, ...]
    there: tuple[str, ...]

    @classmethod
    def over(cls, read: Iterable[str], there: Iterable[str]) -> Sight:
        """Give the sight of a run, each name once."""
        return cls(tuple(dict.fromkeys((_OURS, *read))), tuple(dict.fromkeys(there)))

    def state(self) -> array[int]:
        """Give size, times and place on the disk of each, zeros where there is none."""
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

    def settled(self, state: array[int]) -> bool:
        """Whether nothing was touched so lately that its times could stay if it were again."""
        times = state[: len(self.read) * len(_GONE)]
        return max(*times[1 :: len(_GONE)], *times[2 :: len(_GONE)]) < _BEGAN - SETTLED


class Command(Record):
    """A command line with all that it means: where it is given, to whom, by which program."""

    arguments: tuple[str, ...]
    reader: str

    @classmethod
    def given(cls) -> Command | None:
        """Give the command line of this process, None where it is none that repeats itself."""
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
        variables = [os.environ.get(name) for name in _VARIABLES]
        program = (__version__, sys.version, sys.flags.utf8_mode, sys.path)
        return cls(arguments, repr((here, columns, sys.stdout.encoding, variables, program)))

    @property
    def folder(self) -> str:
        """The folder in which the arguments say that things are kept."""
        words = iter(self.arguments)
        folder = CACHE
        for word in words:
            if word == _OPTION:
                folder = next(words, folder)
            elif word.startswith(f"{_OPTION}="):
                folder = word[len(_OPTION) + 1 :]
        return folder

    def printed(self, folder: str) -> Printed | None:
        """Give what this command is to print, None where that has to be found out."""
        data = _read(os.path.join(folder, self.name))  # noqa: PTH118
        fields = _fields(data) if data else None
        if fields is None or fields[0] != self._key:
            return None
        _, code, read, there, state, text = fields
        sight = Sight(_names(read), _names(there))
        if sight.read[:1] != (_OURS,) or sight.state().tobytes() != state:
            return None
        try:
            return Printed(text.decode("utf-8", "surrogatepass"), int(code))
        except ValueError:
            return None

    def record(self, printed: Printed, sight: Sight, state: array[int]) -> bytes:
        """Give what is to be kept of a run, for `printed` of the next."""
        text = printed.text.encode("utf-8", "surrogatepass")
        names = [os.fsencode("\0".join(names)) for names in sight]
        fields = (self._key, str(printed.code).encode(), *names, state.tobytes(), text)
        body = b"".join(fields)
        head = " ".join(map(str, (zlib.crc32(body), *map(len, fields))))
        return head.encode() + b"\n" + body

    @property
    def name(self) -> str:
        """The name of the file of what this command printed."""
        return f"{zlib.crc32(self._key):08x}{SUFFIX}"

    @property
    def _key(self) -> bytes:
        return repr((self.arguments, self.reader)).encode("utf-8", "surrogatepass")


def _read(file: str) -> bytes:
    """Give what a file of ours holds, nothing where there is none or something else."""
    try:
        state = os.stat(file)  # noqa: PTH116
        if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            return b""
        with open(file, "rb") as stream:  # noqa: PTH123
            return stream.read()
    except (OSError, ValueError):
        return b""


def _fields(data: bytes) -> Sequence[bytes] | None:
    """Take apart what `record` put together, None where it was damaged."""
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
