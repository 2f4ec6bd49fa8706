"""Graphs: networks that pass messages between the nodes of a graph, and steps that train them."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.loops.loops import Loop, Loops
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.training.networks import Networks, Root
from torchlint.semantic.training.sizes import Sizes
from torchlint.semantic.training.steps import Step, Steps

_LIBRARIES: Final = re.compile(
    r"(?:torch_geometric\.nn|dgl\.(?:nn|function|ops|sparse)|torch_sparse|torch_scatter)\..*|"
    r"torch\.(?:sparse\.mm|spmm|dsmm)"
)
_LOADERS: Final = re.compile(r"torch_geometric\.(?:data|loader)\..*|dgl\.dataloading\..*")
_EDGES: Final = re.compile(
    r"adj|adj_(?!lr)\w+|adjacency\w*|edge_(?:index|attr|weight)\w*|ndata|edata|srcdata|dstdata|"
    r"update_all|apply_edges"
)
_SENDING: Final = re.compile(r"update_all|apply_edges|send_and_recv|propagate")
_GIVEN: Final = re.compile(rf"{_EDGES.pattern}|edges")
_NODES: Final = re.compile(r"train_(?:mask|idx|index)|idx_train")


class Graphs(Analysis):
    """Finds the networks and steps whose work is the edges of graphs, not dense products."""

    def __init__(self, networks: Networks, sizes: Sizes, loops: Loops, steps: Steps) -> None:
        super().__init__(networks.functions)
        self.networks = networks
        self.sizes = sizes
        self.loops = loops
        self.steps = steps

    def are_trained_in(self, step: Step) -> bool:
        """Return whether a step trains on graphs, by what its loop names or its networks do."""
        loops = [each for each in self.loops.around(step.backward) if each.is_batch]
        loops = loops or self.steps.loops_of(step.backward)
        if any(
            _EDGES.fullmatch(word) for each in loops for word in self.tree.words(each.node.body)
        ):
            return True
        if any(_GIVEN.fullmatch(word) for each in step.forwards for word in self.tree.words(each)):
            return True
        if self._chooses_nodes(step, loops) or any(map(self._draws_graphs, loops)):
            return True
        found = [self.loops.module_call(call) for call in step.forwards]
        roots = (self.networks.roots(each) for each in found if each is not None)
        return any(any(map(self._sends, each)) for each in roots)

    def are_behind(self, optimizer: cst.Call) -> bool:
        """Return whether an optimizer holds a network that passes messages or trains on graphs."""
        if any(map(self._sends, self.networks.held(optimizer))):
            return True
        return any(
            optimizer in self.networks.holders(network)
            for step in self.steps.all
            if self.are_trained_in(step)
            for call in step.forwards
            if (network := self.loops.module_call(call)) is not None
        )

    def _sends(self, root: Root) -> bool:
        """Return whether the code of a network multiplies or gathers along edges."""
        return any(map(self._reads_edges, self.sizes.regions(root)))

    def _reads_edges(self, region: cst.CSTNode) -> bool:
        if any(
            _LIBRARIES.fullmatch(self.networks.names.name(call.func) or "")
            or _SENDING.fullmatch(method_of(call))
            for call in self.tree.within(region, cst.Call)
        ):
            return True
        return any(
            method.name.value == "forward"
            and any(_GIVEN.fullmatch(param.name.value) for param in method.params.params)
            for method in self.tree.within(region, cst.FunctionDef)
        )

    def _chooses_nodes(self, step: Step, loops: list[Loop]) -> bool:
        """Return whether a loss reads the rows of the nodes that are to be learned."""
        lines: tuple[cst.CSTNode, ...] = step.lines or tuple(each.node.body for each in loops[:1])
        return any(
            _NODES.fullmatch(word)
            for line in lines
            for part in self.tree.within(line, cst.SubscriptElement)
            for word in self.tree.words(part)
        )

    def _draws_graphs(self, loop: Loop) -> bool:
        made = self.networks.origins.of(loop.loader).values if loop.loader is not None else ()
        return any(
            isinstance(each, cst.Call)
            and _LOADERS.fullmatch(self.networks.names.name(each.func) or "")
            for each in made
        )
