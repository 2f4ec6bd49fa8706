"""Attention written out: products, a scale, masks and dropout, as people write them."""

from __future__ import annotations

from typing import Final

from trainings.writer import Writer

__all__ = ["write_attention"]

_HEADS: Final = ".view(x.size(0), x.size(1), 2, 4).transpose(1, 2)"
_TOGETHER: Final = "x + mixed.transpose(1, 2).reshape(x.size(0), x.size(1), 8)"
_TRIANGLE: Final = "torch.tril(torch.ones(5, 5, device=x.device))"


def write_attention(writer: Writer) -> tuple[list[str], list[str]]:
    """Write the layers of an attention over five positions of width 8, and its forward pass."""
    layers, forward = writer.pick((_together(), ""), (_apart(), ""))
    heads = writer.maybe("heads")
    if heads:
        forward.append(f"q, k, v = q{_HEADS}, k{_HEADS}, v{_HEADS}")
    forward.append(f"scores = {_scaled(writer, heads)}")
    masked, buffer = _masked(writer)
    drop = writer.maybe("weights = self.weights_drop(weights)")
    forward += [
        *masked,
        writer.pick(
            ("weights = F.softmax(scores, dim=-1)", ""),
            ("weights = torch.softmax(scores, -1)", ""),
            ("weights = scores.softmax(dim=-1)", ""),
        ),
        drop,
        writer.pick(("mixed = weights @ v", ""), ("mixed = torch.matmul(weights, v)", "")),
        f"x = {_TOGETHER if heads else 'x + mixed'}",
    ]
    return [*layers, *buffer, "self.weights_drop = nn.Dropout(0.0)" if drop else ""], forward


def _together() -> tuple[list[str], list[str]]:
    return ["self.qkv = nn.Linear(8, 24)"], ["q, k, v = self.qkv(x).chunk(3, dim=-1)"]


def _apart() -> tuple[list[str], list[str]]:
    names = {"q": "query", "k": "key", "v": "value"}
    layers = [f"self.{name} = nn.Linear(8, 8)" for name in names.values()]
    return layers, [f"{short} = self.{name}(x)" for short, name in names.items()]


def _scaled(writer: Writer, heads: str) -> str:
    product = writer.pick(
        ("q @ k.transpose(-2, -1)", ""),
        ("torch.matmul(q, k.transpose(-1, -2))", ""),
        ("q @ k.permute(0, 1, 3, 2)" if heads else "torch.bmm(q, k.transpose(1, 2))", ""),
    )
    return writer.pick(
        (f"{product} / math.sqrt(k.size(-1))", ""),
        (f"({product}) * k.size(-1) ** -0.5", ""),
        (f"({product}) * 0.5", ""),
        (product, ""),
    )


def _masked(writer: Writer) -> tuple[list[str], list[str]]:
    """Write what hides the positions to come, and the buffer for it."""
    filled = 'scores = scores.masked_fill({} == 0, float("-inf"))'
    hidden = "scores.masked_fill_({}, -torch.inf)"
    buffer = 'self.register_buffer("{}", {})'
    return writer.pick(
        (([], []), ""),
        (([filled.format(_TRIANGLE)], []), ""),
        (
            (
                [filled.format("self.past")],
                [buffer.format("past", "torch.tril(torch.ones(5, 5))")],
            ),
            "",
        ),
        (
            (
                [hidden.format("self.later.bool()")],
                [buffer.format("later", "torch.triu(torch.ones(5, 5), diagonal=1)")],
            ),
            "",
        ),
    )
