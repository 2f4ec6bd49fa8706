"""Words inside identifiers."""

from __future__ import annotations

import pytest

from torchlint.semantic.scope.words import says_evaluation, says_training, words


def test_identifiers_are_split_however_they_are_written() -> None:
    assert words("valLoader2") == ("val", "loader")
    assert words("self.HTTPServer_test") == ("self", "http", "server", "test")


@pytest.mark.parametrize(
    "name",
    [
        "val_loader",
        "testloader",
        "self.validDL",
        "validate",
        "check_accuracy",
        "dev_iter",
        "evalSet",
    ],
)
def test_evaluation(name: str) -> None:
    assert says_evaluation(name)
    assert not says_training(name)


@pytest.mark.parametrize(
    "name", ["latest", "value", "device", "dev", "contest", "loader", "interval"]
)
def test_no_evaluation(name: str) -> None:
    assert not says_evaluation(name)


@pytest.mark.parametrize("name", ["train_loader", "Trainer.fit", "pretrain", "trainloader"])
def test_training(name: str) -> None:
    assert says_training(name)
