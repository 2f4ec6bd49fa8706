"""The loops: training and evaluation, at module level or in functions, and what they count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainings.writer import Feed, Setup, Task, Writer, inner

__all__ = ["write_loops"]

EPOCHS: Final = 2


@dataclass(frozen=True)
class _Count:
    """Something counted over the batches of a loop: made before, added in it, shown after."""

    made: str
    added: str
    shown: str
    value: str = ""


def write_loops(writer: Writer, task: Task, feed: Feed, setup: Setup) -> list[str]:
    """Write the functions and the loop over epochs."""
    training, shown = _training(writer, task, feed, setup)
    evaluation, found = _evaluation(writer, task, feed.renamed("held_out"))
    before, best, saved = _best(writer, found)
    sections = []
    if not setup.rebuilt and writer.pick((False, "TL104 TL206 TL313"), (True, "")):
        returned, shown = _returned(writer, shown)
        sections.append(f"def train(model, criterion, epoch):\n{inner([training, returned])}")
        training = "print(train(model, criterion, epoch))" if "return" in returned else _CALLED
        if evaluation:
            measured = inner([evaluation, f"return {found}"])
            sections.append(f"def evaluate(model, criterion):\n{measured}")
            evaluation = f"{found} = evaluate(model, criterion)"
    compiled = _COMPILED if writer.focus == "TL313" else ""
    body = [compiled, training, shown, evaluation, best, *_scheduled(writer, setup)]
    epochs = f"for epoch in range({EPOCHS}):\n{inner(body)}"
    watched = writer.pick(
        ("", ""),
        ("with torch.autograd.profiler.profile():", "TL802"),
        ("with torch.autograd.detect_anomaly():", "TL801"),
    )
    epochs = f"{watched}\n{inner([epochs])}" if watched else epochs
    return [*sections, "\n".join(part for part in (before, epochs, saved) if part)]


_COMPILED: Final = 'fast = torch.compile(model, backend="eager")'
_CALLED: Final = "train(model, criterion, epoch)"


def _returned(writer: Writer, shown: str) -> tuple[str, str]:
    """Return what a function of an epoch returns, if anything, and what is shown after it.

    Either the function shows all that it counted, or it returns what would be shown last.
    """
    *rest, last = shown.splitlines() or [""]
    plain = last.startswith("print(") and not any(mark in last for mark in ('f"', ".format", "%"))
    if plain and writer.pick((True, ""), (False, "")):
        value = last.removeprefix("print(").removesuffix(")")
        return "\n".join([*rest, f"return {value}"]), ""
    return shown, ""


def _scheduled(writer: Writer, setup: Setup) -> list[str]:
    if not setup.scheduler:
        return []
    return [
        "scheduler.step()",
        *writer.some(('print("rate", scheduler.get_last_lr())', "")),
    ]


# -- training ------------------------------------------------------------------------------------


def _training(writer: Writer, task: Task, feed: Feed, setup: Setup) -> tuple[str, str]:
    """Write an epoch of training, and what is shown after it."""
    counts = _training_counts(writer, task, feed)
    batch = [
        feed.first,
        *writer.some(
            ("model.train()", "TL206"),
            ("criterion = criterion.to(device)" if not setup.rebuilt else "", "TL206"),
        ),
        setup.rebuilt,
        *_step(writer, feed, setup),
        _AVERAGE if setup.averaged else "",
        *(count.added for count in counts),
        writer.maybe("if loss.item() > 1e6:\n    break", never="TL502 TL704"),
        feed.index and writer.maybe(f"if {feed.index} == 1:\n    print(loss.item())"),
    ]
    lines = [
        writer.maybe("model.train()"),
        feed.before,
        *(count.made for count in counts),
        feed.head,
        inner(batch),
    ]
    shown = [count.shown for count in counts]
    return _joined_lines(lines), _joined_lines(shown)


def _joined_lines(lines: list[str]) -> str:
    return "\n".join(line.rstrip("\n") for line in lines if line)


def _step(writer: Writer, feed: Feed, setup: Setup) -> list[str]:
    """Write one step: zeroing, forward and backward pass, clipping, the optimizer."""
    zero = writer.pick(
        ("optimizer.zero_grad()", ""),
        ("optimizer.zero_grad(set_to_none=False)", "TL502"),
        ("model.zero_grad()", ""),
    )
    penalty = writer.maybe("loss = loss + 0.01 * penalty(model.out.bias)", "TL209", "TL502 TL704")
    taught = writer.maybe(_TAUGHT, "TL411") if setup.averaged else ""
    network = "fast" if writer.focus == "TL313" else "model"
    forward = [f"out = {network}(xb)", "loss = criterion(out, yb)", penalty, taught]
    backward = writer.pick(("loss.backward()", ""), ("(loss / 2).backward()", ""))
    clip = writer.maybe("nn.utils.clip_grad_norm(model.parameters(), 1.0)", "TL506")
    passes = _passes(writer, forward, backward)
    if feed.index and writer.pick((False, "TL502"), (False, ""), (True, "TL704")):
        stepping = inner([clip, "optimizer.step()", zero])
        return [*passes, f"if ({feed.index} + 1) % 2 == 0:\n{stepping}"]
    if writer.pick((True, ""), (False, "")):
        return [zero, *passes, clip, "optimizer.step()"]
    return [*passes, clip, "optimizer.step()", zero]


_TAUGHT: Final = "goal = averaged(xb)\nloss = loss + 0.1 * (out - goal).square().mean()"
_AVERAGE: Final = """\
for own, average in zip(model.parameters(), averaged.parameters()):
    average.data.copy_(0.9 * average.data + 0.1 * own.data)"""


def _passes(writer: Writer, forward: list[str], backward: str) -> list[str]:
    """Write the two passes, in mixed precision or not."""
    cast = writer.pick(
        ("", "TL406"),
        ("with torch.cuda.amp.autocast(enabled=False):", "TL302"),
        *_MIXED[: 0 if writer.close and writer.focus != "TL314" else None],
    )
    if not cast:
        return [*forward, backward]
    if writer.pick((False, ""), (writer.close, "TL314")):
        return [f"{cast}\n{inner([*forward, backward])}"]
    return [f"{cast}\n{inner(forward)}", backward]


_MIXED: Final = (
    ("with torch.cpu.amp.autocast():", "TL302"),
    ('with torch.autocast("cpu", dtype=torch.bfloat16):', "TL314"),
)


def _training_counts(writer: Writer, task: Task, feed: Feed) -> list[_Count]:
    return [
        count
        for count in (
            _running(writer, feed),
            _listed(writer),
            _joined(writer),
            _correct(writer) if task.classes else None,
        )
        if count is not None
    ]


def _running(writer: Writer, feed: Feed) -> _Count | None:
    added = writer.pick(
        ("", ""),
        ("running += loss.item()", "TL201"),
        ("running += loss.item() * xb.size(0)", "TL201"),
        ("running += xb.shape[0] * loss.item()", "TL201"),
        (f"running += loss.item() / {feed.steps}", "TL201"),
        ("running += float(loss)", "TL201"),
        ("running = running + loss.item()", "TL201"),
        ("running -= loss.item()", ""),
        ("running += loss.item() ** 2", ""),
        ("running = max(running, loss.item())", ""),
        ("running = 0.9 * running + 0.1 * loss.item()", ""),
        ("value = loss.item()\nrunning += value", "TL201"),
        ("running += loss.detach().cpu().item()", "TL201"),
        ("running += loss", "TL208"),
        ("running = running + loss", "TL208"),
        ("running += loss.data", ""),
    )
    if feed.index:
        added += writer.pick(
            ("", ""),
            ("", ""),
            (f"\nif {feed.index} % 2 == 1:\n    print(epoch, running / 2)", ""),
            (f"\nif {feed.index} % 2 == 1:\n    print(running)\n    running = 0.0", ""),
        )
    shown = writer.pick(
        ('print("epoch", epoch, running)', ""),
        ("print(running)", ""),
        (f"print(running / {feed.steps})", ""),
        (f"running = running / {feed.steps}\nprint(epoch, running)", ""),
        (f"running /= {feed.steps}\nprint(running)", ""),
        ('print(f"epoch {epoch}: {running:.5f}")', ""),
        ('print("epoch {}: {:.5f}".format(epoch, running))', ""),
        ('print("epoch %d: %.5f" % (epoch, running))', ""),
    )
    made = writer.pick(("running = 0.0", ""), ("running = 0", ""))
    return _Count(made, added, shown) if added.startswith(("running", "value")) else None


def _listed(writer: Writer) -> _Count | None:
    added, shown = writer.pick(
        (("", ""), ""),
        (("losses.append(loss.item())", "print(losses)"), "TL201"),
        (("losses.append(loss.item())", "print(sum(losses) / len(losses))"), "TL201"),
        (("losses.append(loss.item())", "print(np.mean(losses))"), "TL201"),
        (("losses.append(float(loss))", "print(max(losses), losses[-1])"), "TL201"),
        (("losses.append(loss)", "print(torch.stack(losses).mean())"), "TL208"),
        (("losses.append(loss)", "print(sum(losses).item() / len(losses))"), "TL208"),
        (("losses.append(loss.item())\nprint(losses[-1])", "print(losses)"), ""),
        (("losses.append(loss.item() * 2)", "print(np.array(losses).mean())"), ""),
        (("losses.append([epoch, loss.item()])", "print(losses)"), ""),
        (("losses.append(loss.detach().cpu().numpy())", "print(np.mean(losses))"), "TL201"),
    )
    return _Count("losses = []", added, shown) if added else None


def _joined(writer: Writer) -> _Count | None:
    added = writer.pick(
        ("", ""), ("", ""), ("seen = torch.cat([seen, loss.detach().reshape(1)])", "TL405")
    )
    return _Count("seen = torch.empty(0)", added, "print(seen)") if added else None


def _correct(writer: Writer) -> _Count | None:
    added = writer.pick(
        ("", ""),
        ("correct += (out.argmax(1) == yb).sum().item()", "TL201"),
        ("correct += out.max(1)[1].eq(yb).sum().item()", "TL201"),
        ("correct += (out.argmax(dim=1) == yb).float().mean().item()", "TL201"),
        ("correct += int((out.argmax(1) == yb).sum())", "TL201"),
        ("correct += torch.sum(out.argmax(1) == yb).item()", "TL201"),
        ("_, guess = torch.max(out, 1)\ncorrect += (guess == yb).sum().item()", "TL201"),
    )
    added += "\ntotal += yb.size(0)" if added else ""
    made = writer.pick(("correct, total = 0, 0", ""), ("correct = 0\ntotal = 0", ""))
    shown = writer.pick(
        ("print(correct / total)", ""), ('print(f"{100 * correct / total:.2f}%")', "")
    )
    return _Count(made, added, shown) if added else None


# -- evaluation ----------------------------------------------------------------------------------


def _evaluation(writer: Writer, task: Task, feed: Feed) -> tuple[str, str]:
    """Write an evaluation, and give the name of what it found; nothing for none."""
    if not writer.pick((True, ""), (False, ""), (True, "TL202 TL601 TL903")):
        return "", ""
    count = _evaluation_count(writer, task, feed)
    loop = f"{feed.head}\n{inner([feed.first, 'out = model(xb)', count.added])}"
    if writer.pick((True, ""), (False, "TL601")):
        loop = f"with torch.no_grad():\n{inner([loop])}"
    again = writer.maybe("model.train()")
    return _joined_lines(
        ["model.eval()", feed.before, count.made, loop, count.shown, again]
    ), count.value


def _evaluation_count(writer: Writer, task: Task, feed: Feed) -> _Count:
    loss = "criterion(out, yb)"
    options = [
        (("error = 0.0", f"error += {loss}.item()", 'print("error", error)'), "TL202"),
        (("error = 0", f"error += {loss}.item() * yb.size(0)", "print(error)"), "TL202"),
        (
            ("error = 0.0", f"loss = {loss}\nerror += float(loss)", f"error /= {feed.steps}"),
            "TL202",
        ),
        (
            ("error = 0.0", f"loss = {loss}\nerror += loss.item() / {feed.steps}", "print(error)"),
            "TL202",
        ),
        (
            (
                "hits, error = 0, 0.0",
                f"error += {loss}.item()\nhits += (out > 0).sum().item()",
                "print(hits, error)",
            ),
            "TL202",
        ),
        (("error = 0.0", f"error = error + {loss}.detach()", "print(error)"), ""),
        (
            (
                "error = []",
                "error.append(out.detach().cpu().numpy())",
                "error = np.concatenate(error).mean()\nprint(error)",
            ),
            "TL202",
        ),
        (
            (
                "error = []",
                "error.extend(out.detach().cpu().tolist())",
                "error = float(np.sum(error))\nprint(error)",
            ),
            "TL202",
        ),
        (
            (
                "error = []",
                f"error.append({loss}.item())",
                "error = sum(error) / len(error)\nprint(error)",
            ),
            "TL202",
        ),
    ]
    made, added, shown = writer.pick(*options)
    return _Count(made, added, shown, "error")


def _best(writer: Writer, found: str) -> tuple[str, str, str]:
    """Write what keeps the best weights: before the epochs, in each, and after them."""
    if not found or not writer.maybe("best", "TL903"):
        return "", "", ""
    return (
        'best = float("inf")\nkept = None',
        f"if {found} < best:\n    best = {found}\n    kept = model.state_dict()",
        "torch.save(kept, io.BytesIO())",
    )
