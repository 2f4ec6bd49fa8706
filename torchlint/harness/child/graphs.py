"""Graphs of device work: what is captured once, and runs whenever it is replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from torchlint.harness.child.device import Device

Action = Callable[[], None]

_ACTIONS: Final = "torchlint_actions"


class Graphs:
    """Knows what to do after each replay of a graph.

    While a graph is captured, nothing runs, and the device can neither be waited for nor tell
    the time. No hook is called when it is replayed.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._captured: list[Action] = []
        homes = (torch.cuda, getattr(torch, "accelerator", None))
        for home, name in zip(homes, ("CUDAGraph", "Graph"), strict=True):
            if hasattr(home, name):
                self._watch(getattr(home, name))

    @property
    def capturing(self) -> bool:
        """Whether a graph is being captured."""
        return self._device.is_capturing()

    def now_or_replayed(self, action: Action) -> None:
        """Act now, or where a graph is being captured after each of its replays."""
        if self.capturing:
            self._captured.append(action)
        else:
            action()

    def _watch(self, graph: Any) -> None:
        end, replay = graph.capture_end, graph.replay

        def capture_end(captured: Any) -> None:
            end(captured)
            setattr(captured, _ACTIONS, self._captured)
            self._captured = []

        def replayed(captured: Any) -> None:
            replay(captured)
            for action in getattr(captured, _ACTIONS, ()):
                action()

        graph.capture_end, graph.replay = capture_end, replayed
