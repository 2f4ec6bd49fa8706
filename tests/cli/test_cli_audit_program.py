"""The command `audit` on programs of several modules."""

from __future__ import annotations

import json
from typing import Any

from cli_shell import Shell

MAIN = """\
import torch
from engine import train
from nets import Net

if __name__ == "__main__":
    net = Net().cuda()
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), range(9))
"""
ENGINE = """\
import torch


def train(net, optimizer, loader):
    total = 0.0
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total)
"""
NETS = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).mean((2, 3))
"""
OTHER = """\
import torch
from engine import train

if __name__ == "__main__":
    torch.autograd.set_detect_anomaly(True)
    net = torch.nn.Linear(3, 8)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), range(9))
"""


def write(shell: Shell) -> None:
    shell.write("pyproject.toml", "")
    for name, text in (("main", MAIN), ("engine", ENGINE), ("nets", NETS), ("other", OTHER)):
        shell.write(f"{name}.py", text)


def audited(shell: Shell, *words: str) -> Any:
    done = shell.run("audit", "--output-format", "json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def by_technique(audit: Any) -> dict[str, Any]:
    return {row["technique"]: row for row in audit["rows"]}


def test_a_script_is_answered_for_with_the_modules_that_it_imports(quick: Shell) -> None:
    write(quick)
    found = audited(quick, "main.py")
    assert found["modules"] == ["engine.py", "nets.py"]
    rows = by_technique(found)
    waits = rows["no host syncs in the training loop"]
    assert (waits["state"], waits["filename"], waits["line"]) == ("missing", "engine.py", 11)
    assert waits["rules"] == ["TL201"]
    bias = rows["no bias before batch norm"]
    assert (bias["state"], bias["filename"], bias["rules"]) == ("missing", "nets.py", ["TL401"])
    assert rows["choice of optimizer"]["line"] == 7
    assert "filename" not in rows["choice of optimizer"]
    assert rows["no debugging tools left on"]["state"] == "in use"


def test_a_script_alone_does_not_know_its_network(quick: Shell) -> None:
    write(quick)
    rows = by_technique(audited(quick, "main.py", "--no-program"))
    assert rows["no bias before batch norm"]["state"] == "cannot tell"


def test_a_folder_stands_for_the_scripts_in_it_that_train(quick: Shell) -> None:
    write(quick)
    main, other = audited(quick, ".")
    assert [each["script"] for each in (main, other)] == ["main.py", "other.py"]
    assert by_technique(other)["no debugging tools left on"]["state"] == "missing"
    assert by_technique(main)["no debugging tools left on"]["state"] == "in use"


def test_the_text_names_the_file_of_each_line(quick: Shell) -> None:
    write(quick)
    first, *lines = quick.run("audit", "main.py").stdout.splitlines()
    assert first == "main.py and 2 modules that it uses"
    text = " ".join(" ".join(lines).split())
    assert ", engine.py:11 TL201" in text


def test_a_folder_without_a_script_that_trains_is_one_line(quick: Shell) -> None:
    quick.write("sub/helper.py", "X = 1\n")
    done = quick.run("audit", "sub")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: sub: no script here trains: name one\n"


def test_a_module_that_does_not_parse_does_not_stop_the_audit(quick: Shell) -> None:
    write(quick)
    quick.write("nets.py", "class Net(:\n")
    assert audited(quick, "main.py")["modules"] == ["engine.py"]
