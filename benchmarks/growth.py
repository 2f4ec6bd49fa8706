"""Measure how the cost of a check grows with lines, files and rules, and draw it.

    python benchmarks/growth.py /tmp/speed/A --into /tmp/speed/growth

Lines: one file of 250 to 16,000 lines of networks with their training and evaluation, all with
different names. Scripts: one file of the given tree's training scripts, concatenated and repeated,
so that each binds the names of earlier ones again. Files: 10 to 1,000 files of 250 lines. Rules:
random subsets of the rules on the tree. Each point is the least CPU time of several runs with one
process and without a cache. Prints tables and which goals are met, and writes growth.svg.
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from timing import Command, Cost, installed, python_files, run, show_table

LINES = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000)
ONCE = 2_000
"""Lines of training scripts before they repeat."""
LONGEST = 300
"""The most lines of one training script."""
ALLOWED = 1.1
"""The most that the cost per line may grow in a file many times as long."""
ONE_RULE = 2.0
"""The percentage of a run that one more rule may cost."""
FILES = (10, 30, 100, 300, 1_000)
SIZES = (1, 2, 5, 10, 20, 35, 50)
"""Sizes of the subsets of rules, besides all of them."""
BLOCK = '''
class Net{n}(nn.Module):
    """A small convolutional network."""

    def __init__(self, width=32, classes=10):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, images):
        hidden = F.relu(self.norm(self.first(images)))
        hidden = F.relu(self.second(hidden))
        hidden = self.pool(hidden).flatten(1)
        return self.head(hidden)


def train{n}(network, loader, optimizer, device):
    network.train()
    total = 0.0
    for step, (images, labels) in enumerate(loader):
        images = images.to(device)
        labels = labels.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"step {{step}}: {{loss.item():.4f}}")
    return total / len(loader)


def evaluate{n}(network, loader, device):
    network.eval()
    right = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            scores = network(images.to(device))
            right += (scores.argmax(1) == labels.to(device)).sum().item()
            seen += len(labels)
    return right / seen


def main{n}(root, epochs=10):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = Net{n}().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    data = datasets.CIFAR10(root, transform=transforms.ToTensor())
    loader = DataLoader(data, batch_size=128, shuffle=True)
    for epoch in range(epochs):
        loss = train{n}(network, loader, optimizer, device)
        score = evaluate{n}(network, loader, device)
        print(epoch, loss, score)
'''
HEAD = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
"""


@dataclass(frozen=True)
class Point:
    """The least cost of checking an amount."""

    amount: int
    cpu: float
    peak: float


@dataclass(frozen=True)
class Check:
    """The measured check."""

    torchlint: Path
    repeats: int

    def cost(self, folder: Path, rules: str = "ALL") -> Cost:
        """Return the cost of the fastest run."""
        line: list[str | Path] = [
            self.torchlint,
            "check",
            "--isolated",
            "--no-cache",
            "--jobs=1",
            "--quiet",
        ]
        command = Command([*line, f"--select={rules}", "."], folder)
        return min((run(command) for _ in range(self.repeats)), key=lambda cost: cost.cpu)

    def point(self, amount: int, folder: Path) -> Point:
        """Measure one amount."""
        cost = self.cost(folder)
        return Point(amount, cost.cpu, cost.peak)


def text(lines: int, first: int = 0) -> str:
    """Return a file of about this many lines."""
    count = max(1, round(lines / BLOCK.count("\n")))
    return HEAD + "\n".join(BLOCK.format(n=first + number) for number in range(count))


def by_lines(check: Check, folder: Path) -> list[Point]:
    """Measure one file of growing length."""
    points = []
    for lines in LINES:
        (folder / "many.py").write_text(text(lines), encoding="utf-8")
        points.append(check.point(lines, folder))
    return points


def by_scripts(check: Check, folder: Path, tree: Path) -> list[Point]:
    """Measure one file of more and more training scripts."""
    scripts = training_scripts(tree)
    points = []
    for lines in (lines for lines in LINES if lines >= ONCE):
        parts: list[str] = []
        while (length := sum(part.count("\n") for part in parts)) < lines:
            parts.append(scripts[len(parts) % len(scripts)])
        (folder / "scripts.py").write_text("".join(parts), encoding="utf-8")
        points.append(check.point(length, folder))
    return points


def training_scripts(tree: Path) -> list[str]:
    """Return the training scripts of a tree up to a number of lines."""
    found: list[str] = []
    for path in python_files(tree):
        script = path.read_text(encoding="utf-8")
        if ".backward()" in script and script.count("\n") < LONGEST and "__future__" not in script:
            found.append(f"{script}\n")
        if sum(each.count("\n") for each in found) >= ONCE:
            break
    return found


def by_files(check: Check, folder: Path) -> list[Point]:
    """Measure a growing number of files of one length."""
    points = []
    for files in FILES:
        for number in range(files):
            (folder / f"part{number}.py").write_text(text(250, number), encoding="utf-8")
        points.append(check.point(files, folder))
    return points


def by_rules(check: Check, tree: Path, subsets: int) -> list[Point]:
    """Measure random subsets of the rules, and all of them."""
    listing = [str(check.torchlint), "rules", "--output-format=json"]
    shown = subprocess.run(listing, check=True, capture_output=True)
    codes = [rule["code"] for rule in json.loads(shown.stdout)]
    chance = random.Random(0)
    chosen = [chance.sample(codes, size) for size in SIZES for _ in range(subsets)]
    points = []
    for subset in [*chosen, codes]:
        cost = check.cost(tree, ",".join(subset))
        points.append(Point(len(subset), cost.cpu, cost.peak))
    return points


def start(check: Check, folder: Path) -> float:
    """Measure a file with nothing but its imports."""
    (folder / "imports.py").write_text(HEAD, encoding="utf-8")
    return check.point(0, folder).cpu


def growth(points: Sequence[Point], start: float) -> float:
    """Return the cost per line of the longest file relative to one of 2,000 lines."""
    short, long = next(point for point in points if point.amount >= ONCE), points[-1]
    return ((long.cpu - start) / long.amount) / ((short.cpu - start) / short.amount)


def goal(what: str, limit: float, measured: float, unit: str) -> tuple[str, ...]:
    """Return the row of a goal."""
    met = "yes" if measured <= limit else "NO"
    return what, f"at most {limit:g}{unit}", f"{measured:.2f}{unit}", met


def show_growth(name: str, points: Sequence[Point]) -> None:
    """Print the cost of each amount; an exponent of 1 between neighbors is linear growth."""
    print(f"\ncost by {name}\n")
    start = points[0]
    rows = [(str(start.amount), f"{start.cpu:.3f}", "", f"{start.peak:.0f}")]
    for before, after in pairwise(points):
        grown = math.log(after.cpu / before.cpu) / math.log(after.amount / before.amount)
        rows.append((f"{after.amount}", f"{after.cpu:.3f}", f"{grown:.2f}", f"{after.peak:.0f}"))
    show_table((name, "CPU, s", "exponent", "memory, MiB"), rows)


def show_rules(points: Sequence[Point]) -> float:
    """Print the cost of subsets of each size, and return the percentage per added rule."""
    print("\ncost by rules\n")
    sizes = sorted({point.amount for point in points})
    groups = [[point.cpu for point in points if point.amount == size] for size in sizes]
    rows = [
        (str(size), f"{statistics.mean(group):.3f}", f"{min(group):.3f} to {max(group):.3f}")
        for size, group in zip(sizes, groups, strict=True)
    ]
    show_table(("rules", "mean CPU, s", "range"), rows)
    slope, base = line_through(points)
    whole = base + slope * max(sizes)
    share = 100 * slope / whole
    print(f"\na rule more: {1000 * slope:.2f} ms, {share:.2f} % of a run with all")
    return share


def line_through(points: Iterable[Point]) -> tuple[float, float]:
    """Return slope and start of a straight line through the points."""
    pairs = [(point.amount, point.cpu) for point in points]
    slope, base = statistics.linear_regression(*zip(*pairs, strict=True))
    return slope, base


def draw(file: Path, panels: Sequence[tuple[str, Sequence[Point]]]) -> None:
    """Draw the points of each panel, with a straight line through them."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2))
    for axis, (name, points) in zip(axes, panels, strict=True):
        slope, base = line_through(points)
        ends = [0, max(point.amount for point in points)]
        axis.plot(ends, [base + slope * end for end in ends], color="0.7", linewidth=1)
        axis.plot([p.amount for p in points], [p.cpu for p in points], "o", markersize=4)
        axis.set(xlabel=name, ylabel="CPU time, s", ylim=(0, None), xlim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    """Parse the options, measure, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, help="the tree on which the rules are measured")
    parser.add_argument(
        "--into", type=Path, required=True, help="the folder for growth.svg; needs matplotlib"
    )
    parser.add_argument("--torchlint", type=Path, default=installed("torchlint"))
    parser.add_argument("--repeats", type=int, default=3, help="runs of each point")
    parser.add_argument("--subsets", type=int, default=4, help="subsets of each size")
    options = parser.parse_args()
    if options.torchlint is None:
        parser.error("torchlint is not installed here: pass --torchlint")
    options.into.mkdir(parents=True, exist_ok=True)
    check = Check(options.torchlint.absolute(), options.repeats)
    panels: list[tuple[str, list[Point]]] = []
    tree = options.tree.resolve()
    measures: dict[str, Callable[[Check, Path], list[Point]]] = {
        "lines": by_lines,
        "lines of scripts": partial(by_scripts, tree=tree),
        "files": by_files,
    }
    for name, measure in measures.items():
        with tempfile.TemporaryDirectory() as folder:
            panels.append((name, measure(check, Path(folder))))
        show_growth(*panels[-1])
    panels.append(("rules", by_rules(check, tree, options.subsets)))
    share = show_rules(panels[-1][1])
    with tempfile.TemporaryDirectory() as folder:
        least = start(check, Path(folder))
    goals = [
        goal(
            f"a line of {points[-1].amount:,} {name}: one of {ONCE:,}",
            ALLOWED,
            growth(points, least),
            " times",
        )
        for name, points in panels[:2]
    ]
    print()
    rule_goal = goal("a rule more, of a run with all", ONE_RULE, share, " %")
    show_table(("goal", "limit", "measured", "met"), [*goals, rule_goal])
    draw(options.into / "growth.svg", panels)


if __name__ == "__main__":
    main()
