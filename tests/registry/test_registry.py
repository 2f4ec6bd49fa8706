from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pack_pages import page

from torchlint.config import ConfigError, Settings
from torchlint.page.document import Snippet
from torchlint.page.header import Header
from torchlint.registry import Registry, RegistryError, RuleHead, load_registry
from torchlint.registry.packs import installed_packs

RULE = """
from torchlint.api import Rule

class Theirs(Rule):
    def check(self, script):
        yield from ()
"""
PAGE = page(
    "XY100",
    "their-rule",
    needs="[torch, x]",
    default="false",
    since="2.4",
    options='{"workers": 4, "deep": true}',
)
IN_PYTHON = '''
from torchlint.api import Rule

class Theirs(Rule):
    """
    ## What it does
    It.

    ## Why it is slow
    So.

    ## When not to
    Never.

    ## Fix safety
    None.
    """

    code = "XY100"
    name = "their-rule"
    summary = "theirs"
    impact = "low"
    safety = None
    needs = ("torch", "x")
    default = False
    since = (2, 4)
    invalid = {"a": """
        # target-torch: 2.5
        ! x
        """}
    valid = {"b": "y"}

    def check(self, script):
        yield from ()
'''


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of installed packs that is on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _install(site: Path, package: str, name: str = "xy", page: str = PAGE, **modules: str) -> None:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torchlint.rules]\n{name} = {package}\n")
    (site / package).mkdir()
    (site / package / "__init__.py").touch()
    for module, text in modules.items():
        file = site / package / f"{module}.py"
        file.write_text(text)
        if page and re.match(r"[a-z]+[0-9]+_", module):
            file.with_suffix(".md").write_text(page)


def _heads(**defaults: bool) -> Registry:
    """Return a catalogue without modules: names follow codes."""
    heads = []
    for code, default in defaults.items():
        name = f"name-{code.lower()}"
        head = RuleHead(code, name, page="a page")
        header = Header(code, name, "", "low", None, ("x",), since=(2, int(code[2])))
        vars(head)["header"] = header._replace(default=default)
        heads.append(head)
    return Registry(tuple(heads))


CATALOGUE = _heads(TL001=True, TL101=True, TL102=True, TL201=True, TL211=False)


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({}, "TL001 TL101 TL102 TL201"),
        ({"select": ("ALL",)}, "TL001 TL101 TL102 TL201 TL211"),
        ({"select": ("TL1",)}, "TL001 TL101 TL102"),
        ({"select": ("TL1", "name-tl211")}, "TL001 TL101 TL102 TL211"),
        ({"select": ("TL1",), "ignore": ("TL102", "TL001")}, "TL101"),
        ({"select": ("TL101",), "ignore": ("TL1",)}, "TL001 TL101"),
        ({"select": ("TL101",), "ignore": ("name-tl101",)}, "TL001"),
        ({"select": ("name-tl101",), "ignore": ("TL10",)}, "TL001 TL101"),
        ({"extend_select": ("TL2",)}, "TL001 TL101 TL102 TL201 TL211"),
        ({"ignore": ("TL1",), "extend_select": ("TL102",)}, "TL001 TL102 TL201"),
        ({"select": ("TL2",), "extend_ignore": ("TL21",)}, "TL001 TL201"),
        ({"target_torch": (2, 1)}, "TL001 TL101 TL102"),
    ],
)
def test_the_most_specific_word_wins(options: dict[str, tuple[str, ...]], codes: str) -> None:
    assert " ".join(CATALOGUE.select(Settings(**options)).codes) == codes  # type: ignore[arg-type]


def test_a_selection_knows_whether_it_is_complete() -> None:
    assert CATALOGUE.select(Settings()).complete
    assert CATALOGUE.select(Settings(select=("ALL",))).complete
    assert not CATALOGUE.select(Settings(ignore=("TL201",))).complete
    assert not CATALOGUE.select(Settings()).without(["TL101"]).complete


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            Settings(select=("TL109",)),
            "unknown code or name `TL109`: the nearest codes are TL101",
        ),
        (Settings(unfixable=("TL9",)), "--unfixable: unknown code or name `TL9`"),
        (Settings(ignore=("",)), "--ignore: unknown code or name ``"),
        (Settings(per_file_ignores={"a": ("nam-tl101",)}), "did you mean `name-tl101`"),
        (Settings(rules={"name-tl102x": {}}), "unknown rule `name-tl102x`, did you mean `name-tl1"),
    ],
)
def test_an_unknown_word_is_an_error_with_the_nearest(settings: Settings, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CATALOGUE.select(settings)


def test_the_line_of_an_unknown_code(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.torchlint]\nselect = [\n  "TL1",\n  "TL9",\n]\n')
    settings = Settings(select=("TL1", "TL9"), config_file=file, sources={"select": str(file)})
    with pytest.raises(ConfigError, match=r"pyproject\.toml:4: unknown code or name `TL9`"):
        CATALOGUE.select(settings)


def test_a_rule_is_found_by_code_and_by_name() -> None:
    assert CATALOGUE.find("tl101") is CATALOGUE.find("name-tl101")
    with pytest.raises(ConfigError, match="unknown rule `TL11`: the nearest codes are TL"):
        CATALOGUE.find("TL11")


def test_what_stands_on_the_page_of_a_rule_is_what_it_has() -> None:
    registry = load_registry()
    assert (registry.errors, registry.deprecations) == ((), ())
    for head in registry.rules:
        rule = head.load()
        parts = (rule.code, rule.name, rule.about, rule.needs, rule.since, rule.default)
        assert parts == (head.code, head.name, head.about, head.needs, head.since, head.default)
        assert head.page == rule.page_file
        assert rule.page().header == head.header


def test_a_pack_of_others_is_listed_without_importing_it(site: Path) -> None:
    _install(site, "theirpack", xy100_their_rule=RULE, helper="raise SystemExit")
    registry = load_registry()
    head = registry.find("XY100")
    assert (head.name, head.pack, head.needs) == ("their-rule", "xy", ("torch", "x"))
    assert (head.default, head.since) == (False, (2, 4))
    assert "theirpack.xy100_their_rule" not in sys.modules
    assert head.load().name == "their-rule"


def test_a_page_in_python_is_read_for_one_more_release(site: Path) -> None:
    _install(site, "oldpack", page="", xy100_their_rule=IN_PYTHON)
    registry = load_registry()
    assert registry.deprecations == (
        "rule pack `xy`: the page of xy100_their_rule stands in Python, which the next release of "
        "torchlint does not read: write xy100_their_rule.md beside it",
    )
    head = registry.find("XY100")
    assert (head.default, head.since, head.needs) == (False, (2, 4), ("torch", "x"))
    written = head.load().page()
    assert written.header == Header(
        "XY100", "their-rule", "theirs", "low", None, ("torch", "x"), since=(2, 4), default=False
    )
    assert written.sections["When not to"] == "Never."
    assert written.reported == (Snippet("a", "! x", {"target-torch": "2.5"}),)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("code = ", "kode = ", "RuleError: rule Theirs has no page: write xy100_their_rule.md"),
        ("XY100", "XY1", "RuleError: rule Theirs: 'XY1' or 'their-rule' is malformed"),
        ('("torch", "x")', '"x"', "`needs` must be a tuple of strings, it is 'x'"),
        ("(2, 4)", "2", "`since` must be two numbers such as (2, 4), it is 2"),
        ("## When not to", "## When", "RuleError: rule XY100: its page has the headings ("),
        ("XY100", "XY200", "promises code 'XY100', its rule has 'XY200'"),
    ],
)
def test_a_page_in_python_that_is_broken_is_named(
    site: Path, old: str, new: str, said: str
) -> None:
    package = f"oldbad{abs(hash(new))}"
    _install(site, package, page="", xy100_their_rule=IN_PYTHON.replace(old, new))
    (error,) = load_registry().errors
    assert error.startswith(f"rule pack `xy`: {package}.xy100_their_rule")
    assert said in error


def test_a_rule_in_python_is_not_passed_over_for_its_name(site: Path) -> None:
    _install(site, "misnamed", page="", xy1_their_rule=IN_PYTHON, py2_help="x = 1\n")
    assert load_registry().errors == (
        "rule pack `xy`: misnamed.xy1_their_rule: `XY1` is no code: two to five letters and three "
        "digits, such as ABC101",
    )


def test_a_class_has_nothing_that_its_page_has(site: Path) -> None:
    text = RULE.replace("    def", '    needs = ("x",)\n\n    def', 1)
    _install(site, "doublepack", xy100_their_rule=text)
    with pytest.raises(RegistryError, match=r"`needs` belongs to xy100_their_rule\.md"):
        load_registry().find("XY100").load()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"worker": 2}, "rule `their-rule` has no option `worker`, did you mean `workers`"),
        ({"workers": "2"}, "`workers` of rule `their-rule` must be a whole number, such as 4"),
        ({"workers": True}, "must be a whole number"),
        ({"deep": 1}, "must be true or false"),
    ],
)
def test_options_of_rules_are_checked(site: Path, options: dict[str, object], said: str) -> None:
    _install(site, "optionpack", xy100_their_rule=RULE)
    with pytest.raises(ConfigError, match=said):
        load_registry().select(Settings(rules={"their-rule": options}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_thing\n" + RULE, "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("x = 1\n", "must hold one rule, it holds 0"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(site: Path, text: str, said: str) -> None:
    package = f"bad{abs(hash(text))}"
    _install(site, package, xy100_their_rule=text)
    registry = load_registry()
    errors = list(registry.errors)
    if not errors:
        with pytest.raises(RegistryError) as caught:
            registry.find("XY100").load()
        errors.append(str(caught.value))
    (error,) = errors
    assert error.startswith(f"rule pack `xy`: {package}.xy100_their_rule")
    assert said in error
    assert registry.find("TL001").load().code == "TL001"


def test_a_pack_without_rules_is_named_and_the_others_stay(site: Path) -> None:
    _install(site, "emptypack")
    info = site / "gone-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchlint.rules]\ngone = gonepack\n")
    registry = load_registry()
    assert sorted(registry.errors) == [
        "rule pack `gone`: there is no package gonepack",
        "rule pack `xy`: the package emptypack holds no rules",
    ]
    assert registry.find("TL001").pack == "torchlint"


@pytest.mark.parametrize("module", ["tl001_mine", "xy100_unparsable_file"])
def test_packs_that_clash_are_refused_by_name(site: Path, module: str) -> None:
    code, _, name = module.partition("_")
    text = page(code.upper(), name.replace("_", "-"))
    _install(site, "clashpack", page=text, **{module: RULE})
    with pytest.raises(RegistryError, match="rule packs `torchlint` and `xy` clash: TL001"):
        load_registry()


def test_two_packs_of_one_name_are_refused(site: Path) -> None:
    _install(site, "onepack")
    _install(site, "otherpack")
    with pytest.raises(RegistryError, match="two rule packs are called `xy`"):
        installed_packs()


def test_no_rules_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlint.registry.packs.BUILT_IN", ("torchlint", "no_such_package"))
    with pytest.raises(RegistryError, match="no rules found"):
        load_registry()


def test_the_built_in_pack_costs_no_import_of_metadata() -> None:
    program = (
        "import sys\nfrom torchlint.config import Settings\n"
        "from torchlint.registry import load_registry\n"
        "assert load_registry().select(Settings()).rules\n"
        "heavy = {'importlib.metadata', 'libcst', 'torchlint.rule', 'torchlint_rules'}\n"
        "print(*sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout.strip() == ""
