"""Hooks: the methods of a class that a framework calls, and how often it calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import index_of, method_of


class Rate(Enum):
    """How often a framework calls a method."""

    ONCE = auto()
    EPOCH = auto()
    EVALUATION_STEP = auto()
    STEP = auto()


_LIGHTNING: Final = r"(?:lightning(?:\.pytorch)?|pytorch_lightning)\.(?:\w+\.)*"
_BASES: Final = (
    (re.compile(_LIGHTNING + "LightningModule"), "lightning", "module"),
    (re.compile(_LIGHTNING + "Callback"), "lightning", "callback"),
    (re.compile(r"(?:transformers|trl|sentence_transformers)\.(?:\w+\.)*TrainerCallback"),
     "transformers", "callback"),
    (re.compile(r"(?:transformers|trl|sentence_transformers)\.(?:\w+\.)*\w*Trainer"),
     "transformers", "trainer"),
    (re.compile(r"mm(?:cv|engine|det|seg|pose|cls|pretrain|action|edit|agic)\d?d?\.(?:\w+\.)*"
                r"Base(?:Module|Model|Detector|Segmentor|Classifier|Recognizer)"),
     "openmmlab", "runner module"),
    (re.compile(r"(?:mmcv|mmengine)\.(?:\w+\.)*Hook"), "openmmlab", "hook"),
    (re.compile(r"catalyst\.(?:\w+\.)*\w*(?:Callback|Runner)"), "catalyst", "experiment"),
    (re.compile(r"\.?speechbrain\.(?:\w+\.)*Brain"), "speechbrain", "brain"),
)  # fmt: skip
"""The base classes whose methods a framework calls, each with what its instances are."""
_HOOKS: Final = {
    "runner module": {Rate.STEP: "train_step", Rate.EVALUATION_STEP: "val_step test_step"},
    "hook": {
        Rate.STEP: "before_train_iter after_train_iter before_iter after_iter",
        Rate.EVALUATION_STEP: "before_val_iter after_val_iter before_test_iter after_test_iter",
        Rate.EPOCH: "before_epoch after_epoch before_train_epoch after_train_epoch "
        "before_val_epoch after_val_epoch before_test_epoch after_test_epoch",
        Rate.ONCE: "before_run after_run before_train after_train",
    },
    "experiment": {
        Rate.STEP: "handle_batch _handle_batch on_batch_start on_batch_end",
        Rate.EVALUATION_STEP: "predict_batch",
        Rate.EPOCH: "on_loader_start on_loader_end on_epoch_start on_epoch_end",
        Rate.ONCE: "on_stage_start on_stage_end on_experiment_start on_experiment_end",
    },
    "brain": {
        Rate.STEP: "fit_batch on_fit_batch_start on_fit_batch_end optimizers_step",
        Rate.EVALUATION_STEP: "evaluate_batch",
        Rate.EPOCH: "on_stage_start on_stage_end",
        Rate.ONCE: "init_optimizers make_dataloader on_fit_start on_evaluate_start",
    },
    "trainer": {
        Rate.STEP: "training_step compute_loss _prepare_inputs get_batch_samples",
        Rate.EVALUATION_STEP: "prediction_step",
        Rate.EPOCH: "evaluate evaluation_loop log get_eval_dataloader",
        Rate.ONCE: "create_optimizer create_scheduler create_optimizer_and_scheduler "
        "get_train_dataloader",
    },
    "module": {
        Rate.STEP: "training_step on_train_batch_start on_train_batch_end on_before_zero_grad "
        "optimizer_zero_grad on_before_backward backward on_after_backward "
        "on_before_optimizer_step configure_gradient_clipping optimizer_step "
        "on_before_batch_transfer transfer_batch_to_device on_after_batch_transfer",
        Rate.EVALUATION_STEP: "validation_step test_step predict_step on_validation_batch_start "
        "on_validation_batch_end on_test_batch_start on_test_batch_end on_predict_batch_start "
        "on_predict_batch_end",
        Rate.EPOCH: "on_train_epoch_start on_train_epoch_end on_validation_start "
        "on_validation_end on_validation_epoch_start on_validation_epoch_end on_test_start "
        "on_test_end on_test_epoch_start on_test_epoch_end training_epoch_end "
        "validation_epoch_end test_epoch_end lr_scheduler_step on_predict_epoch_end",
        Rate.ONCE: "setup configure_optimizers configure_model train_dataloader val_dataloader "
        "test_dataloader on_fit_start on_fit_end on_train_start on_train_end teardown",
    },
    "callback": {
        Rate.STEP: "on_step_begin on_step_end on_substep_end on_pre_optimizer_step "
        "on_optimizer_step on_train_batch_start on_train_batch_end on_before_zero_grad "
        "on_before_backward on_after_backward on_before_optimizer_step",
        Rate.EVALUATION_STEP: "on_prediction_step on_validation_batch_start "
        "on_validation_batch_end on_test_batch_start on_test_batch_end",
        Rate.EPOCH: "on_epoch_begin on_epoch_end on_log on_evaluate on_save on_predict "
        "on_train_epoch_start on_train_epoch_end on_validation_start on_validation_end "
        "on_validation_epoch_start on_validation_epoch_end on_test_epoch_end",
        Rate.ONCE: "on_init_end on_train_begin on_train_end setup on_fit_start on_fit_end "
        "on_train_start teardown",
    },
}
_RATES: Final = {
    what: {name: rate for rate, names in hooks.items() for name in names.split()}
    for what, hooks in _HOOKS.items()
}
_SENT: Final = {"module": "training_step", "trainer": "compute_loss"}
"""The methods whose result, or the loss in it, a framework calls `backward` on."""
_MAKING: Final = ("training_step", "compute_loss", "prediction_step")
"""The methods of trainers and modules that give the loss of a batch."""
_GIVEN: Final = {"lightning": "on_train_batch_end", "openmmlab": "after_train_iter"}
"""The hooks that get what the step of a batch returned."""
_LOSS: Final = ("'loss'", '"loss"')
_AUTOMATIC: Final = "automatic_optimization"
_LOGS: Final = ("log", "log_dict")


class Hooks(Analysis):
    """Tells which framework calls a method, how often, and which results go backward."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)

    def framework(self, function: cst.FunctionDef) -> str | None:
        """Return the framework that calls methods of the class around a function."""
        served = self._of(function)
        return None if served is None else served[0]

    def rate(self, function: cst.FunctionDef) -> Rate | None:
        """Return how often a framework calls a method, None if none is known to call it."""
        served = self._of(function)
        return None if served is None else _RATES[served[1]].get(function.name.value)

    def losses(self) -> Iterator[cst.BaseExpression]:
        """Yield what methods return for a framework that calls `backward` on it."""
        for function in self.tree.all(cst.FunctionDef):
            if self.sends(function):
                for returned in self.functions.returns(function):
                    yield from _losses(returned)

    def sends(self, function: cst.FunctionDef) -> bool:
        """Return whether a method returns the loss that a framework calls `backward` on."""
        served = self._of(function)
        if served is None or function.name.value not in _SENT.get(served[1], "").split():
            return False
        return not self.steps_by_hand(self.scopes.scope(function).node)

    def inherits_loss(self, call: cst.Call) -> bool:
        """Return whether the method that a class overrides makes a loss: `super().compute_loss`."""
        if method_of(call) not in _MAKING or not isinstance(call.func, cst.Attribute):
            return False
        base, function = call.func.value, self.scopes.function(call)
        return (
            isinstance(base, cst.Call)
            and self.names.name(base.func) == "builtins.super"
            and function is not None
            and self._of(function) is not None
        )

    def takes_log(self, call: cst.Call, given: cst.CSTNode) -> bool:
        """Return whether Lightning keeps an argument for its log, and reads it when it shows it."""
        function, method = self.scopes.function(call), method_of(call)
        if method not in _LOGS or function is None or (method == "log" and given is call.args[0]):
            return False
        shows = any(arg.keyword and arg.keyword.value == "prog_bar" for arg in call.args)
        return not shows and self.framework(function) == "lightning"

    def is_loss_of_batch(self, node: cst.Subscript) -> bool:
        """Return whether a framework gives a hook a loss with its batch: `outputs["loss"]`."""
        bindings = self.scopes.reaching(node.value)
        function = self.scopes.function(node)
        return (
            any(self.tree.code(each.slice) in _LOSS for each in node.slice)
            and function is not None
            and function.name.value == _GIVEN.get(self.framework(function) or "")
            and all(isinstance(each.node, cst.Param) for each in bindings)
            and bool(bindings)
        )

    def steps_by_hand(self, owner: cst.CSTNode) -> bool:
        """Return whether a class is a module of Lightning that optimizes by hand."""
        return any(
            isinstance(line := self.tree.parent(self.tree.parent(target)), cst.Assign)
            and self.tree.inside(target, owner)
            and self.tree.code(line.value) == "False"
            for target in self.functions.attributes(_AUTOMATIC)
        )

    def _of(self, function: cst.FunctionDef) -> tuple[str, str] | None:
        owner = self.scopes.scope(function).node
        return self._served(owner) if isinstance(owner, cst.ClassDef) else None

    @memoized(None)
    def _served(self, owner: cst.ClassDef) -> tuple[str, str] | None:
        for base in self.functions.bases(owner):
            for pattern, framework, what in _BASES:
                if pattern.fullmatch(base):
                    return framework, what
        return None


def _losses(returned: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the loss in a result: alone, before the outputs, or by its name in a dictionary."""
    if isinstance(returned, cst.IfExp):
        if not _is_first(returned.orelse, returned.body):
            yield from _losses(returned.body)
        yield from _losses(returned.orelse)
    elif isinstance(returned, cst.Tuple):
        yield from (each.value for each in returned.elements[:1])
    elif isinstance(returned, cst.Dict):
        for entry in returned.elements:
            if isinstance(entry, cst.DictElement) and isinstance(entry.key, cst.SimpleString):
                if entry.key.value in _LOSS:
                    yield entry.value
    else:
        yield returned


def _is_first(node: cst.BaseExpression, whole: cst.BaseExpression) -> bool:
    """Return whether a node is the first element of a name: `result[0]` of `result`."""
    taken = isinstance(node, cst.Subscript) and node.value.deep_equals(whole)
    return taken and isinstance(index_of(node), cst.Integer)
