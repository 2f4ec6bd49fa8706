"""The parts of a file that have nothing to do with each other, and what is around a step."""

from __future__ import annotations

import libcst as cst
from linked_modules import parse

from torchlint.semantic.script import Script, sections
from torchlint.source import Source

TWO = """\
import torch
from mine import Net, loader

def train(net, opt):
    for x in loader:
        net(x).sum().backward()
        opt.step()

def pretrain(net, opt, scaler):
    for x in loader:
        scaler.scale(net(x).sum()).backward()
        scaler.step(opt)

def start():
    one, two = Net(), Net()
    scaler = torch.amp.GradScaler("cuda")
    pretrain(one, torch.optim.SGD(one.parameters()), scaler)
    two.cuda()
    train(two, torch.optim.SGD(two.parameters()))

if __name__ == "__main__":
    start()
"""


def _sections(text: str) -> list[str]:
    return [each.tree.own_text.strip() for each in sections(Script.parse(Source("a.py", text)))]


def test_unrelated_functions_are_sections_of_their_own() -> None:
    found = _sections("import torch\nx = 1\ndef f():\n    return x\ndef g():\n    return torch\n")
    assert found == [
        "x = 1\n\ndef f():\n    return x",
        "import torch\n\ndef g():\n    return torch",
    ]


def test_functions_that_share_a_helper_are_together() -> None:
    assert len(_sections("def h(): pass\ndef f(): h()\ndef g(): h()\ndef k(): pass\n")) == 2


def test_what_runs_at_import_is_one_section() -> None:
    assert len(_sections("def f(): pass\ndef g(): pass\nf()\ng()\n")) == 1


def test_names_found_at_run_time_keep_a_file_together() -> None:
    assert len(_sections("def f(): pass\ndef g(): return globals()['f']\n")) == 1


def test_a_value_that_a_user_writes_keeps_nothing_together() -> None:
    given = "def f(): pass\ndef g(args):\n    args.sizes = eval(args.sizes)\n    return args.sizes"
    assert len(_sections(f"from eval import apply\n{given}\n")) == 2
    assert len(_sections(f"{given}()\n")) == 1


def test_names_of_a_function_keep_nothing_together() -> None:
    assert len(_sections("def f(): pass\ndef g(): return 'x' in locals()\n")) == 2


def test_an_unused_import_belongs_to_what_runs() -> None:
    script = Script.parse(Source("a.py", "import apex\nimport re\nx = 1\ndef f(): return re\n"))
    assert [each.functions.imported for each in sections(script)] == [("apex",), ("re",)]


def test_definitions_that_share_a_linked_helper_are_together() -> None:
    texts = {
        "a.py": "import b\nfrom c import k as q\ndef f(): b.h()\ndef g(): b.h()\ndef l(): q()\n",
        "b.py": "def h(): pass\ndef unused(): pass\n",
        "c.py": "import a\nx = 1\ndef k(): a.m(x)\ndef n(): a.l()\n",
    }
    found = [each.tree for each in sections(parse(texts, "a.py"))]
    named = [
        [
            str(each.place(line))
            for line in each.body
            if not isinstance(line, cst.SimpleStatementLine)
        ]
        for each in found
    ]
    assert named == [["a.py:5", "c.py:3", "c.py:4"], ["a.py:3", "a.py:4", "b.py:1"]]


def test_another_training_is_not_around_a_step() -> None:
    script = Script.parse(Source("a.py", TWO))
    first, second = sorted(script.loops.steps.all, key=lambda each: script.span(each.backward))
    assert not script.around(first.backward).tree.mentions("GradScaler", "pretrain")
    assert script.around(first.backward).tree.mentions("two.cuda()")
    assert script.around(second.backward).tree.mentions("GradScaler")


def test_the_steps_of_one_definition_have_the_same_surroundings() -> None:
    step = "    for x in loader:\n        net(x).sum().backward()\n        opt.step()\n"
    script = Script.parse(Source("a.py", TWO.replace(step, 20 * step)))
    around = [script.around(each.backward) for each in script.loops.steps.all]
    found = {id(each): each for each in around}
    assert len(script.loops.steps.all) == 21
    assert [each.tree.mentions("pretrain") for each in found.values()] == [False, True]
