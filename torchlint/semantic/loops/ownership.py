"""Ownership: which framework runs a loop or a method, what it does there, and how often."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.loops.engines import Engines, Rate
from torchlint.semantic.scope.memo import Memo
from torchlint.semantic.values.values import Values

HAND_WRITTEN: Final = "none"
"""The owner of a loop that a script writes itself."""


class Duty(Enum):
    """What a loop has to do, and what some frameworks do for it."""

    PLACING = auto()
    PRECISION = auto()
    CLEARING = auto()
    DIVIDING = auto()
    MODES = auto()
    SHARDING = auto()


_ALL: Final = frozenset("transformers lightning fastai".split())
_DONE: Final = {
    Duty.PLACING: _ALL | {"fabric", "accelerate"},
    Duty.PRECISION: _ALL | {"fabric", "accelerate", "deepspeed", "ignite", "openmmlab"},
    Duty.CLEARING: _ALL | {"deepspeed", "ignite", "openmmlab"},
    Duty.DIVIDING: _ALL | {"accelerate", "deepspeed", "ignite", "openmmlab"},
    Duty.MODES: _ALL | {"ignite", "openmmlab"},
    Duty.SHARDING: _ALL | {"fabric", "accelerate", "deepspeed", "ignite", "openmmlab"},
}
"""The frameworks that do each duty themselves, or may do it."""
BY_HAND: Final = (Duty.CLEARING, Duty.DIVIDING)
"""What a module of Lightning does that optimizes by hand."""
_AUTOMATIC: Final = "automatic_optimization"
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
)  # fmt: skip
"""The base classes whose methods a framework calls, each with what its instances are."""
_OBJECTS: Final = (
    (re.compile(r"accelerate\.(?:accelerator\.)?Accelerator"), "accelerate"),
    (re.compile(r"(?:lightning(?:\.fabric(?:\.fabric)?)?|lightning_fabric(?:\.fabric)?)\.Fabric"),
     "fabric"),
    (re.compile(r"deepspeed\.initialize"), "deepspeed"),
)  # fmt: skip
"""The objects whose `backward` a loop calls."""
_WORDS: Final = {
    "accelerator": "accelerate",
    "fabric": "fabric",
    "engine": "deepspeed",
    "model": "deepspeed",
    "model_engine": "deepspeed",
}
"""What objects are called that come from code out of view."""
_HOOKS: Final = {
    "runner module": {Rate.STEP: "train_step", Rate.EVALUATION_STEP: "val_step test_step"},
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


class Ownership(Analysis):
    """Tells who runs a loop by what the loop uses, and how often methods are called."""

    def __init__(self, functions: Functions, values: Values) -> None:
        super().__init__(functions)
        self.values = values
        self.engines = Engines(functions)
        self._classes = Memo["cst.ClassDef", "tuple[str, str] | None"](
            None, self.names.trail, self._served
        )
        self._owners = Memo["cst.CSTNode", "str | None"](None, self.names.trail, self._by_use)

    def rate(self, function: cst.FunctionDef) -> Rate | None:
        """Return how often a framework calls a function, None if none is known to call it."""
        run = self.engines.rate(function)
        if run is not None:
            return run
        owner = self._class(function)
        served = self._classes.answer(owner) if owner is not None else None
        return None if served is None else _RATES[served[1]].get(function.name.value)

    @staticmethod
    def does(owner: str, duty: Duty) -> bool:
        """Return whether an owner of a loop does a duty, so that the script must not."""
        return owner in _DONE[duty]

    def steps_by_hand(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in a module of Lightning that optimizes by hand."""
        owner = self.scopes.class_of(node)
        return owner is not None and any(
            isinstance(line := self.tree.parent(self.tree.parent(target) or target), cst.Assign)
            and self.tree.inside(target, owner)
            and self.values.value_of(line.value).equals(False)
            for target in self.functions.attributes(_AUTOMATIC)
        )

    def owner(self, node: cst.CSTNode) -> str | None:
        """Return what runs the loop or method around a node, None if nothing around tells.

        It is a framework or `none`, where a script writes its loop itself.
        """
        function = self.scopes.function(node)
        if function is not None:
            owner = self._class(function)
            served = self._classes.answer(owner) if owner is not None else None
            if served is not None:
                return served[0]
            if self.engines.is_process(function):
                return "ignite"
        for outer in self.tree.ancestors(node):
            if isinstance(outer, (cst.For, cst.While, cst.FunctionDef)):
                found = self._owners.answer(outer)
                if found is not None:
                    return found
            if isinstance(outer, cst.FunctionDef):
                return None
        return None

    def _class(self, function: cst.FunctionDef) -> cst.ClassDef | None:
        """Return the class whose method a function is."""
        owner = self.scopes.scope(function).node
        return owner if isinstance(owner, cst.ClassDef) else None

    def _served(self, owner: cst.ClassDef) -> tuple[str, str] | None:
        for base in self.functions.bases(owner):
            for pattern, framework, what in _BASES:
                if pattern.fullmatch(base):
                    return framework, what
        return None

    def _by_use(self, outer: cst.CSTNode) -> str | None:
        """Return whose `backward` a loop or function calls, None if it calls none."""
        body = outer.body if isinstance(outer, (cst.For, cst.While, cst.FunctionDef)) else outer
        if not self.functions.attributes("backward"):
            return None
        found = None
        for region in self.functions.reached(body):
            for call in self.functions.own(region, cst.Call):
                func = call.func
                if isinstance(func, cst.Attribute) and func.attr.value == "backward":
                    owner = self._object(func.value, bool(call.args))
                    if owner is not None:
                        return owner
                    found = HAND_WRITTEN
        return found

    def _object(self, node: cst.BaseExpression, given: bool) -> str | None:
        """Return the framework that an object is of, which `backward` is called on."""
        value = self.values.value_of(node).node
        if isinstance(value, cst.Call):
            name = self.names.name(value.func) or ""
            for pattern, framework in _OBJECTS:
                if pattern.fullmatch(name):
                    return framework
        if isinstance(node, cst.Name):
            made = (binding.value for binding in self.scopes.reaching(node))
            calls = [self.names.name(each.func) for each in made if isinstance(each, cst.Call)]
            for pattern, framework in _OBJECTS:
                if any(pattern.fullmatch(name or "") for name in calls):
                    return framework
        word = node.attr if isinstance(node, cst.Attribute) else node
        return _WORDS.get(word.value) if given and isinstance(word, cst.Name) else None
