"""The header of a page: `key: value` lines between two lines of `---`, a strict part of YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

FENCE: Final = "---"
"""The line before a header and the line behind it."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What may stand nowhere in a line."""

GROUPS: Final = tuple(
    "perf correctness gpu distributed memory data frameworks compile sync".split()
)
"""The groups of rules. Each word selects all of its rules."""

_ENOUGH: Final = 2048
"""How many bytes are read at first: few headers are longer."""
_END: Final = f"\n{FENCE}\n".encode()
_SWITCHES: Final = {"true": True, "false": False}
_JSON: Final = 'JSON such as {"workers": 4}'
_VERSION: Final = re.compile(r"([0-9]+)\.([0-9]+)")
_QUOTED: Final = r'"(?:[^"\\]|\\["\\])*"'
_ITEM: Final = rf'(?:{_QUOTED}|[\w.+(][^,"\[\]{{}}]*)'
_LIST: Final = re.compile(rf"\[(?:{_ITEM}(?:, {_ITEM})*)?\]")


class Header(NamedTuple):
    """The metadata of a rule. The fields are the keys of the header, in order."""

    code: str
    name: str
    summary: str
    impact: str
    safety: str | None
    """The best class that a fix can earn, None where the rule only reports."""
    needs: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("perf",)
    """The words, apart from code and name, that select it."""
    gain: str = "speed"
    """What improves: `speed`, `memory`, `results` (what is learned or measured), `upkeep`."""
    device: str = "any"
    """Where it pays: on `any` device, or on an `accelerator` only."""
    about: tuple[str, ...] = ("torch",)
    articles: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 4)
    default: bool = True
    after: tuple[str, ...] = ()
    options: str = "{}"
    """The options with their defaults, as JSON."""

    @property
    def defaults(self) -> dict[str, Any]:
        """The options with their defaults; raises `ValueError`."""
        if self.options == "{}":
            return {}
        import json

        try:
            found: dict[str, Any] = json.loads(self.options)
        except ValueError:
            raise ValueError(f"`options` must be {_JSON}, it is {self.options}") from None
        return found


def read_header(file: str) -> Header:
    """Return the header of a page, reading no further than its end.

    Raises `PageError` and `OSError`.
    """
    with open(file, "rb") as stream:  # noqa: PTH123
        data = stream.read(_ENOUGH)
        if _END not in data:
            data += stream.read()
    head, end, _ = data.partition(_END)
    lines = decoded(head, file).split("\n")
    return read_header_lines([*lines, FENCE] if end else lines, file)


def decoded(data: bytes, file: str) -> str:
    """Decode the text of a page; raise `PageError` if it is not UTF-8."""
    if b"\r" in data:
        line = data[: data.index(b"\r")].count(b"\n") + 1
        raise PageError(file, line, "a line ends with CR: save the file with LF")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PageError(file, line, "this is no UTF-8") from None


def read_header_lines(lines: Sequence[str], file: str) -> Header:
    """Parse the header that begins with the first line; raises `PageError`."""
    if lines[0] != FENCE:
        raise PageError(file, 1, f"a page begins with a header between two lines of `{FENCE}`")
    values: dict[str, Any] = {}
    for number, line in enumerate(lines[1:], 2):
        if line == FENCE:
            missing = [key for key in _REQUIRED if key not in values]
            if missing:
                raise PageError(file, number, f"the header has no `{missing[0]}`")
            return Header(**values)
        key, mark, value = line.partition(": ")
        if not mark or CONTROL.search(line) or value != value.strip():
            raise PageError(file, number, "a line of the header is `key: value`")
        if key not in _READERS:
            raise PageError(file, number, f"unknown key `{key}`: known are {', '.join(_READERS)}")
        if key in values:
            raise PageError(file, number, f"`{key}` stands here twice")
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            raise PageError(file, number, f"`{key}` must be {error}, it is {value}") from None
    raise PageError(file, len(lines), f"no line of `{FENCE}` ends the header")


def write_header(header: Header) -> Iterator[str]:
    """Yield the lines of a header, without keys that have their default value."""
    yield FENCE
    for key, value in zip(header._fields, header, strict=True):
        if key not in header._field_defaults or value != header._field_defaults[key]:
            yield f"{key}: {_written(key, value)}"
    yield FENCE


def _text(value: str) -> str:
    if value.startswith('"'):
        if re.fullmatch(_QUOTED, value) is None:
            raise ValueError(
                'one text in quotes, with `\\"` for a quote and `\\\\` for a backslash'
            )
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    if not _is_plain(value):
        raise ValueError("in quotes: as it stands YAML takes it for something else")
    return value


def _is_plain(text: str) -> bool:
    """Return whether YAML reads an unquoted text as that same string."""
    return (
        re.match(r"[\w.+(]", text) is not None
        and text == text.strip()
        and ": " not in text
        and " #" not in text
        and not text.endswith(":")
    )


def _list(value: str) -> tuple[str, ...]:
    if _LIST.fullmatch(value) is None:
        raise ValueError("a list such as [a, b]")
    return tuple(map(_text, re.findall(_ITEM, value)))


def _filled_list(value: str) -> tuple[str, ...]:
    found = _list(value)
    if not found:
        raise ValueError("a list that is not empty")
    return found


def _matching(pattern: str, said: str) -> Callable[[str], str]:
    """Return a reader of texts that match a pattern."""

    def read(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(said)
        return value

    return read


def _one_of(*words: str) -> Callable[[str], str]:
    """Return a reader of one of some words."""
    return _matching("|".join(words), f"{', '.join(words[:-1])} or {words[-1]}")


_safety_word: Final = _one_of("exact", "close", "unsafe", "none")


def _safety(value: str) -> str | None:
    word = _safety_word(value)
    return None if word == "none" else word


def _groups(value: str) -> tuple[str, ...]:
    found = _list(value)
    if not found or not set(found) <= set(GROUPS):
        raise ValueError(f"a list of some of {', '.join(GROUPS)}")
    return found


def _since(value: str) -> tuple[int, int]:
    match = _VERSION.fullmatch(value)
    if match is None:
        raise ValueError("a version such as 2.4")
    return int(match[1]), int(match[2])


def _default(value: str) -> bool:
    if value not in _SWITCHES:
        raise ValueError("true or false")
    return _SWITCHES[value]


def _options(value: str) -> str:
    """Check the form of options and return them unparsed: importing `json` is slow."""
    if not (value.startswith("{") and value.endswith("}")):
        raise ValueError(_JSON)
    return value


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "code": _matching(
        r"[A-Z]{2,5}[0-9]{3}", "two to five letters and three digits, such as ABC101"
    ),
    "name": _matching(
        r"[a-z0-9]+(-[a-z0-9]+)*", "lower-case words with hyphens, such as slow-thing"
    ),
    "summary": _text,
    "impact": _one_of("high", "medium", "low"),
    "safety": _safety,
    "needs": _filled_list,
    "elsewhere": _filled_list,
    "groups": _groups,
    "gain": _one_of("speed", "memory", "results", "upkeep"),
    "device": _one_of("any", "accelerator"),
    "about": _filled_list,
    "articles": _list,
    "since": _since,
    "default": _default,
    "after": _list,
    "options": _options,
}
_REQUIRED: Final = tuple(key for key in Header._fields if key not in Header._field_defaults)


def _written(key: str, value: Any) -> str:
    if isinstance(value, tuple):
        if key == "since":
            return ".".join(map(str, value))
        return f"[{', '.join(map(_item, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if key == "options":
        return str(value)
    if value is None:
        return "none"
    return value if _is_plain(value) else _quoted(value)


def _item(text: str) -> str:
    is_plain = _is_plain(text) and not set(text) & set(',"[]{}')
    return text if is_plain else _quoted(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class PageError(Exception):
    """A malformed page; the message begins with its file and line."""

    def __init__(self, file: str, line: int, said: str) -> None:
        super().__init__(f"{file}:{line}: {said}")
