"""The targets of the fuzzer, with texts that hypothesis makes and with those that went wrong once.

`TORCHLINT_EXAMPLES=5000` makes so many of each, others every time.
"""

from __future__ import annotations

import contextlib
import json
import os
from encodings.aliases import aliases
from typing import Any, Final

import pytest
from fuzz.seeds import seeds
from fuzz.targets import SCRIPT, TARGETS
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torchlint.config.settings import key_of, option_names
from torchlint.report.settings import toml
from torchlint.source import Source, SourceError

EXAMPLES: Final = os.environ.get("TORCHLINT_EXAMPLES")
budget = settings(
    max_examples=int(EXAMPLES or 15),
    derandomize=EXAMPLES is None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SMALL: Final = (
    "baseline",
    "cache",
    "configuration",
    "gitignore",
    "measured",
    "outlines",
    "suppressions",
)

IMPORTS: Final = "import torch\nfrom torch.utils.data import DataLoader\n\n"
LOOP: Final = (
    "for x in {}:\n    loss = net(x).sum()\n    loss.backward()\n    opt.step()\n"
    "    print(loss.item())\n"
)

words = st.sampled_from(
    "TL801 TL8 anomaly-detection ALL noqa torchlint ignore ignore-file # : [ ] , TL002 E501".split()
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | words
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | words, inner, max_size=4)
    ),
    max_leaves=9,
)
lines = st.sampled_from(SCRIPT.splitlines())
specifiers = st.from_regex(r"torch ?(([<>=~!]=|[<>])[0-9.*a-z]{1,5},?){1,2}")
keys = st.sampled_from([key_of(name) for name in option_names()])


@pytest.mark.parametrize(
    "text",
    [
        IMPORTS + "while first:\n    first = second\n    second = first\n" + LOOP.format("first"),
        IMPORTS
        + "def made():\n    return made()\n\nloader, more = made()\n"
        + LOOP.format("loader"),
        IMPORTS
        + "def one(x):\n    return two(x)\n\ndef two(x):\n    loader = one(x)\n    more = two(x)\n"
        "    return loader if x else more\n\nloader, more = one(1)\n" + LOOP.format("loader"),
    ],
    ids=["names", "a function", "two functions"],
)
def test_what_is_made_of_itself(text: str) -> None:
    TARGETS["source"](text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "import torch.nn.functional as F\ndef forward(q, k, v):\n"
        "    w = F.softmax(q @ k.mT / w(w) ** 0.5, dim=-1)\n    return w @ v\n",
        "\fmatch one:\n    case 1:\n        import torch\n        @torch.cuda.amp.autocast()\n"
        "        def forward(x):\n            return x @ x\n",
        "while True:\n    import torch\n    from mine import loader, net\n"
        "    optimizer = torch.optim.AdamW(net.parameters())\n    for x in loader:\n"
        "        net(x).backward()\n        optimizer.step()\n    break\n",
    ],
    ids=["a scale made of the weights", "a form feed before a match", "a loop that imports"],
)
def test_fixes_that_did_not_compile(text: str) -> None:
    TARGETS["source"](text.encode())


@pytest.mark.parametrize(
    "entry",
    [
        '[0, ["NO101", 0, 5, "told", null, []]]',
        '[0, [[], 0, 5, "told", null, []]]',
        '[0, ["TL801", 0.5, 5, "told", null, []]]',
        '[0, ["TL801", 0, 5, "told", [null, 3, "", []], []]]',
        '[0, ["TL801", 0, 5, "told", ["Do", 3, "", [[0, 5, null]]], []]]',
        "[1e999]",
    ],
)
def test_an_entry_of_a_cache_that_cannot_be_shown(entry: str) -> None:
    TARGETS["cache"](entry.encode())


@pytest.mark.parametrize(
    "outline",
    [
        "[]",
        "[[], [], [], [], 1]",
        "[[], [[1e99, null, 3, []]], [], null, 0, 0]",
        "[[], [[999999999, 0, 0, 0]], [], null, 0, 0]",
        '[[["function", "f", -5, 99, -1, 3, 3, [], 0]], [], [], null, 0, 0]',
        '[[["class", "f", 3, 1, 1e9, "fg", ".", [], 0]], [], [[9, "a"]], "ab", 1, 1]',
        '[[["x", [], 1, 1, 1, [], [], [], 0]], [], [], null, 0, 0]',
    ],
)
def test_a_kept_outline_that_is_damaged(outline: str) -> None:
    TARGETS["outlines"](outline.encode())


@pytest.mark.parametrize(
    "text",
    [f"jobs = {'[' * 9_999}", f"jobs = {'9' * 9_999}", f"x = {'{a = ' * 9_999}"],
    ids=["lists", "digits", "tables"],
)
def test_a_configuration_that_is_too_much(text: str) -> None:
    TARGETS["configuration"](text.encode())


encodings = st.sampled_from(
    sorted({*aliases, *aliases.values(), "idna", "punycode", "raw_unicode_escape", "undefined"})
)


@given(
    encodings, st.binary(max_size=20) | st.text(max_size=9).map(lambda text: repr(text).encode())
)
@example("hex", b"")
@example("rot13", b"")
@settings(budget, max_examples=10 * budget.max_examples)
def test_encodings(name: str, comment: bytes) -> None:
    data = f"# coding: {name}\n".encode() + SCRIPT.encode() + b"# " + comment
    with contextlib.suppress(SourceError):
        assert Source.from_bytes(data, "fuzzed.py").to_bytes() == data


@pytest.mark.parametrize("name", ["hex", "rot13", "idna", "punycode", "unicode_escape", "utf-7"])
def test_a_script_in_a_rare_encoding(name: str) -> None:
    TARGETS["source"](f"# coding: {name}\n{SCRIPT}# \\x41 +AOk-\n".encode())


patterns = st.lists(st.sampled_from([*"ab*?/[]!^-\\. :", "**", "[:alpha:]"]), max_size=12)


@given(patterns)
@budget
def test_patterns(parts: list[str]) -> None:
    TARGETS["gitignore"]("".join(parts).encode())


@pytest.mark.parametrize("name", TARGETS)
def test_bytes(name: str) -> None:
    @given(st.binary(max_size=200))
    @budget
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


@pytest.mark.parametrize("name", SMALL)
def test_seeds(name: str) -> None:
    for seed in seeds(name):
        TARGETS[name](seed)


@given(st.lists(st.tuples(st.integers(0, 8), lines | st.text(max_size=30)), max_size=12))
@budget
def test_scripts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{' ' * depth}{line}\n" for depth, line in parts)
    TARGETS["source"](text.encode("utf-8", "surrogatepass"))


@given(st.lists(words | st.text(max_size=6), max_size=9))
@budget
def test_comments(parts: list[str]) -> None:
    for between in ("", " "):
        TARGETS["suppressions"](f"# {between.join(parts)}".encode("utf-8", "replace"))


@given(keys, values, st.booleans())
@budget
def test_values_of_settings(key: str, value: Any, shared: bool) -> None:
    head = "[tool.torchlint]\n" if shared else ""
    TARGETS["configuration"](f"{head}{key} = {_toml(value)}\n".encode("utf-8", "replace"))


@given(
    st.sampled_from(["loader-without-workers", "TL801", "TL207"]),
    st.dictionaries(st.sampled_from(["workers", "every", "x"]), values, max_size=2),
)
@budget
def test_values_of_options_of_rules(rule: str, options: dict[str, Any]) -> None:
    pairs = "".join(f"{key} = {_toml(value)}\n" for key, value in options.items())
    TARGETS["configuration"](f"[rules.{rule}]\n{pairs}".encode("utf-8", "replace"))


@given(
    st.dictionaries(
        st.sampled_from(["dependencies", "optional-dependencies"]),
        st.lists(st.text(max_size=20) | specifiers) | values,
    )
)
@budget
def test_requirements(project: dict[str, Any]) -> None:
    pairs = "".join(f"{key} = {_toml(value)}\n" for key, value in project.items())
    TARGETS["configuration"](f"[project]\n{pairs}".encode("utf-8", "replace"))


@pytest.mark.parametrize("name", ["baseline", "cache", "measured", "notebook"])
def test_documents(name: str) -> None:
    """Arbitrary JSON, and what torchlint would write with one value of it replaced."""

    @given(values, st.integers(min_value=0), st.booleans())
    @budget
    def holds(value: Any, at: int, damaged: bool) -> None:
        for seed in [*seeds(name)][-1:]:
            document = json.loads(seed)
            places = list(_places(document))
            holder, key = places[at % len(places)]
            holder[key] = value
            data = json.dumps(document).encode("utf-8", "replace")
            TARGETS[name](data[: at % len(data)] if damaged else data)
        TARGETS[name](json.dumps(value).encode())

    holds()


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return every place in a document that a value stands in: its holder, and the key."""
    pairs = list(document.items()) if isinstance(document, dict) else list(enumerate(document))
    inner = [
        place for _, each in pairs if isinstance(each, (dict, list)) for place in _places(each)
    ]
    return [*((document, key) for key, _ in pairs), *inner]


def _toml(value: Any) -> str:
    """Write a value as TOML, which has no null and no lone surrogates."""
    if value is None:
        return '"None"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{toml(key)} = {_toml(each)}' for key, each in value.items())} }}"
    return toml(value)
