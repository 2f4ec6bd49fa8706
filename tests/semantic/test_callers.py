"""Who runs a function: methods of one name in many classes, and objects that calls hand on."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.scope.memo import AnswerIndex, Memo, Trail
from torchlint.semantic.script import Script
from torchlint.source import Source


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", textwrap.dedent(text)))


def _callers(script: Script, name: str) -> list[list[str]]:
    """Return the calls that run each function of a name."""
    return [
        [script.code(call) for call in script.functions.callers(function)]
        for function in script.tree.all(cst.FunctionDef)
        if function.name.value == name
    ]


def _classes_called(script: Script) -> dict[str, str]:
    """Return the class of which each thing that is called is an instance."""
    return {
        script.code(call.func): owner.name.value
        for call in script.tree.all(cst.Call)
        if (owner := script.functions.instance_of(call.func)) is not None
    }


TWO_CLASSES = """
    import functools
    class First:
        def __init__(self, inner): self.inner = inner
        def step(self, optimizer): optimizer.step()
        def fit(self, optimizer): self.step(optimizer)
        def forward(self, x): return self.inner(x)
    class Second:
        def step(self, optimizer): optimizer.step()
        def fit(self, optimizer): self.step(optimizer=optimizer)
        def forward(self, x): return x
"""


def test_methods_of_one_name_are_run_by_the_calls_of_their_own_class() -> None:
    script = _script(TWO_CLASSES)
    assert _callers(script, "step") == [
        ["self.step(optimizer)"],
        ["self.step(optimizer=optimizer)"],
    ]


def test_the_answer_does_not_depend_on_what_was_asked_before() -> None:
    asked = _script(TWO_CLASSES)
    for function in reversed(asked.tree.all(cst.FunctionDef)):
        asked.functions.callers(function)
    assert _callers(asked, "step") == _callers(_script(TWO_CLASSES), "step")


@pytest.mark.parametrize(
    "lines",
    [
        "net = Second()\nnet(1)",
        "Alias = Second\nnet = Alias()\nnet(1)",
        "make = functools.partial(Second)\nnet = make()\nnet(1)",
        "net = Second().to('cuda').eval()\nnet(1)",
        "def run(net):\n    net(1)\nrun(Second())",
        "def run(x, net):\n    net(1)\nrun(0, net=Second())",
        "def run(x, net):\n    net(1)\nfunctools.partial(run, 0, Second())()",
        "def run(net=Second()):\n    net(1)\nrun()",
        "class Outer:\n    def __init__(self, net):\n        self.net = net\n"
        "    def go(self):\n        self.net(1)\nOuter(Second())",
        "class Outer:\n    def forward(self, net):\n        net(1)\n"
        "outer = Outer()\nouter(Second())",
        "net, other = accelerator.prepare(Second(), 1)\nnet(1)",
        "def run(net: Second):\n    net(1)\nrun(load())",
        "def run(net: 'First | None', other: Second | None):\n    other(1)",
        "def build():\n    return Second()\nnet = build()\nnet(1)",
        "NETS = {'a': Second, 'b': lambda: 0}\nKINDS = {'a': Second}\nnet = KINDS[kind]()\nnet(1)",
    ],
)
def test_an_instance_is_known_wherever_it_is_handed(lines: str) -> None:
    script = _script(textwrap.dedent(TWO_CLASSES) + lines)
    assert "Second" in _classes_called(script).values()
    assert len(_callers(script, "forward")[1]) == 1


OVERRIDDEN = """
    class Base:
        def fit(self, batch): return self.step(batch)
        def step(self, batch): raise NotImplementedError
    class One(Base):
        def step(self, batch): return batch
"""
ANOTHER = """
    class Two(Base):
        def step(self, batch): return 0
"""


@pytest.mark.parametrize(
    "lines",
    [
        "net = First(0) if flag else Second()\nnet(1)",
        "if flag:\n    net = First(0)\nelse:\n    net = Second()\nnet(1)",
        "kind = First if flag else Second\nnet = kind()\nnet(1)",
        "net = {'first': First, 'second': Second}[name]()\nnet(1)",
        "table = {'first': First, 'second': Second}\nnet = table.get(name, First)()\nnet(1)",
        "def make(name):\n    if name:\n        return First(0)\n    return Second()\nmake(2)(1)",
        "class Outer:\n    def __init__(self, kind):\n        self.net = kind()\n"
        "    def go(self):\n        self.net(1)\nOuter(Second)",
        "nets = nn.ModuleList([Second() for _ in range(3)])\nfor net in nets:\n    net(1)",
        "nets = []\nnets.append(Second())\nfor i, net in enumerate(nets):\n    net(1)",
        "nets = nn.ModuleDict({'second': Second()})\nnets[name](1)",
        "nets = {}\nnets['second'] = Second()\nfor net in nets.values():\n    net(1)",
        "layers = [Second()]\nnet = nn.Sequential(*layers, nn.ReLU())\nnet(1)",
    ],
)
def test_a_call_runs_the_objects_that_it_chooses_from(lines: str) -> None:
    script = _script("from torch import nn\n" + textwrap.dedent(TWO_CLASSES) + lines)
    called = [script.code(call) for call in script.functions.callers(_forwards(script)[1])]
    assert [each for each in called if each.endswith("(1)")] == called != []


def test_what_is_added_to_another_list_of_that_name_is_not_run() -> None:
    text = """
        def one(nets):
            nets = []
            nets.append(Second())
        def other():
            nets = []
            nets.append(First(0))
            for net in nets:
                net(1)
    """
    script = _script(TWO_CLASSES + textwrap.indent(textwrap.dedent(text), "    "))
    assert script.functions.callers(_forwards(script)[1]) == ()


def _forwards(script: Script) -> list[cst.FunctionDef]:
    return [each for each in script.tree.all(cst.FunctionDef) if each.name.value == "forward"]


def test_a_call_of_an_abstract_method_runs_its_only_override() -> None:
    script = _script(OVERRIDDEN)
    assert _callers(script, "step") == [[], ["self.step(batch)"]]


def test_a_call_of_an_abstract_method_may_run_any_of_several_overrides() -> None:
    script = _script(OVERRIDDEN + ANOTHER)
    assert _callers(script, "step")[1:] == [["self.step(batch)"]] * 2
    (call,) = (each for each in script.tree.all(cst.Call) if each.args)
    assert [each.name.value for each in script.functions.callees(call)] == ["step", "step"]


def test_a_call_on_the_base_class_itself_runs_no_override() -> None:
    script = _script("""
        class Base:
            def step(self): return 0
        class One(Base):
            def step(self): return 1
        Base().step()
    """)
    assert _callers(script, "step") == [["Base().step()"], []]


TEMPLATE = """
    class Base:
        def fit(self, batch): return self.step(batch)
        def step(self, batch): return batch
        def forward(self, x): return x
    class Sub(Base):
        {fit}
        def step(self, batch): return self(batch)
"""
OWN_FIT = "def fit(self, batch): return self.step(batch + 1)"


@pytest.mark.parametrize(
    ("fit", "callers"),
    [
        ("", ["self.step(batch)"]),
        (OWN_FIT, ["self.step(batch + 1)"]),
        ("def fit(self, batch): return super().fit(batch)", ["self.step(batch)"]),
        ("def fit(self, batch): return Base.fit(self, batch)", ["self.step(batch)"]),
    ],
)
def test_a_method_is_called_by_what_runs_for_its_class(fit: str, callers: list[str]) -> None:
    script = _script(TEMPLATE.format(fit=fit))
    assert _callers(script, "step")[1] == callers


def test_a_template_calls_what_subclasses_override_too() -> None:
    script = _script(TEMPLATE.format(fit=""))
    (call,) = (
        each for each in script.tree.all(cst.Call) if script.code(each) == "self.step(batch)"
    )
    base, override = (each for each in script.functions.callees(call))
    owners = [script.scopes.class_of(each) for each in (base, override)]
    assert [owner.name.value for owner in owners if owner is not None] == ["Base", "Sub"]


def test_an_heir_that_keeps_the_template_runs_what_it_inherits() -> None:
    heir = "    class Heir(Sub):\n        def other(self): return 0\n"
    kept = "    class Kept(Sub):\n        def fit(self, batch): return Base.fit(self, batch)\n"
    script = _script(TEMPLATE.format(fit=OWN_FIT) + heir + kept)
    assert sorted(_callers(script, "step")[1]) == ["self.step(batch + 1)", "self.step(batch)"]


def test_a_mixin_overrides_what_the_template_of_another_base_calls() -> None:
    script = _script("""
        class Base:
            def fit(self, batch): return self.step(batch)
            def step(self, batch): return batch
        class Mixin:
            def step(self, batch): return 0
        class Both(Mixin, Base): pass
    """)
    assert _callers(script, "step")[1] == ["self.step(batch)"]


def test_what_all_objects_override_calls_nothing_that_something_else_calls() -> None:
    script = _script("""
        class Loss:
            def forward(self, x): return x
        class Base:
            def __init__(self, loss): self.loss = loss
            def step(self, batch): return self.loss(batch)
        class Sub(Base):
            def step(self, batch): return self.loss(batch + 1)
        Sub(Loss())
    """)
    assert _callers(script, "forward") == [["self.loss(batch + 1)"]]


def test_an_inherited_forward_is_called_on_objects_of_a_subclass() -> None:
    script = _script(TEMPLATE.format(fit=""))
    assert _callers(script, "forward") == [["self(batch)"]]


def test_a_base_that_is_called_runs_the_forward_of_its_subclasses() -> None:
    script = _script("""
        class Base:
            def fit(self, batch): return self(batch)
        class Sub(Base):
            def forward(self, x): return x
    """)
    assert _callers(script, "forward") == [["self(batch)"]]


@pytest.mark.parametrize(
    ("returned", "callers"),
    [("Net(), 3", ["net(1)"]), ("3, Net()", []), ("*found, Net()", []), ("found", [])],
)
def test_an_object_is_known_beside_what_a_function_returns_with_it(
    returned: str, callers: list[str]
) -> None:
    script = _script(f"""
        class Net:
            def forward(self, x): return x
        def build(found): return {returned}
        net, other = build([])
        net(1)
    """)
    assert _callers(script, "forward") == [callers]


def test_what_a_function_out_of_sight_makes_is_no_instance() -> None:
    script = _script(textwrap.dedent(TWO_CLASSES) + "net = build()\nnet(1)\n")
    assert _callers(script, "forward") == [[], []]


def test_a_function_that_is_handed_on_escapes() -> None:
    script = _script("def a(): pass\ndef b(): pass\na()\nrun(b)\n")
    first, second = script.tree.all(cst.FunctionDef)
    assert not script.functions.escapes(first)
    assert script.functions.escapes(second)


def test_names_that_read_a_binding_are_given_in_order() -> None:
    script = _script("x = 1\nf(x)\nx = 2\ng(x)\nh(x)\n")
    first, second = script.scopes.module.bindings["x"]
    read = [
        [script.code(script.tree.statement(use)) for use in script.scopes.readers(each)]
        for each in (first, second)
    ]
    assert read == [["f(x)"], ["g(x)", "h(x)"]]


def test_what_is_found_of_a_whole_file_is_found_once() -> None:
    script = _script("f()\ng()\n")
    found: list[int] = []

    def count(asked: Script) -> int:
        found.append(len(asked.tree.all(cst.Call)))
        return found[-1]

    assert (script.once(count), script.once(count), found) == (2, 2, [2])


def test_subjects_are_sorted_by_their_answers_in_their_order() -> None:
    subjects, answers = [object() for _ in range(5)], [object(), object()]
    memo = Memo[object, object](None, Trail(), lambda each: answers[subjects.index(each) % 2])
    kept = AnswerIndex(memo, subjects)
    assert kept.with_answer(answers[1]) == subjects[1::2]
    assert kept.with_answer(answers[0]) == subjects[::2]
    assert kept.with_answer(object()) == []


def test_how_often_functions_run_that_all_call_each_other() -> None:
    calls = " + ".join(f"part{number}(x)" for number in range(14))
    parts = (f"def part{number}(x):\n    return {calls}\n" for number in range(14))
    script = _script("".join(parts))
    assert script.loops.frequency(script.tree.all(cst.Call)[0]).name == "UNKNOWN"


def test_a_name_of_two_definitions_calls_both() -> None:
    script = _script("""
        if fast:
            def load(part): return part
        else:
            def load(part): return [part]
        if compiled:
            load_all = load
        def run():
            return load("train")
    """)
    assert _callers(script, "load") == [['load("train")'], ['load("train")']]
    call = next(each for each in script.tree.all(cst.Call))
    assert len(script.functions.surely_held(call.func)) == 2


def test_a_name_that_may_be_of_another_package_is_not_surely_a_definition() -> None:
    script = _script("""
        try:
            from fast import load
        except ImportError:
            def load(part): return [part]
        load("train")
    """)
    assert _callers(script, "load") == [['load("train")']]
    call = next(each for each in script.tree.all(cst.Call))
    assert script.functions.surely_held(call.func) == ()
