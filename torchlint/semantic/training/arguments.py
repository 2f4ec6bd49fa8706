"""Arguments: the calls that configure a framework's training, and what each of their options is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import libcst as cst

from torchlint.finding import Note
from torchlint.semantic.scope.libraries import INSTANTIATES
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import last_word
from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.values import State, Value

_LIGHTNING: Final = r"(?:lightning(?:\.pytorch)?|pytorch_lightning)\.(?:\w+\.)*"
_FABRIC: Final = r"(?:lightning(?:\.fabric(?:\.fabric)?)?|lightning_fabric(?:\.fabric)?)\.Fabric"
_TRL: Final = r"trl\.(?:\w+\.)*(?:SFT|DPO|GRPO|KTO|Reward|RLOO|Distillation)Config"
_ARGUMENTS: Final = {
    "transformers": re.compile(r"transformers\.(?:\w+\.)*(?:Seq2Seq)?TrainingArguments"),
    "trl": re.compile(_TRL),
    "lightning": re.compile(_LIGHTNING + "Trainer"),
    "accelerate": re.compile(r"accelerate\.(?:accelerator\.)?Accelerator"),
    "fabric": re.compile(_FABRIC),
}
"""The classes whose options configure a training, by what defines them."""
_TRAINERS: Final = {
    "transformers": re.compile(r"transformers\.(?:\w+\.)*(?:Seq2Seq)?Trainer"),
    "trl": re.compile(r"trl\.(?:\w+\.)*\w+Trainer"),
    "sentence_transformers": re.compile(r"sentence_transformers\.(?:\w+\.)*\w+Trainer"),
    "lightning": _ARGUMENTS["lightning"],
}
_OF_TRANSFORMERS: Final = {
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "eval_accumulation_steps": None,
    "eval_do_concat_batches": True,
    "batch_eval_metrics": False,
    "logging_nan_inf_filter": True,
    "logging_strategy": "steps",
    "logging_steps": 500,
    "eval_strategy": "no",
    "eval_steps": None,
    "save_strategy": "steps",
    "save_steps": 500,
    "max_steps": -1,
    "num_train_epochs": 3.0,
    "predict_with_generate": False,
}
_DEFAULTS: Final = {
    "transformers": _OF_TRANSFORMERS,
    "trl": {**_OF_TRANSFORMERS, "logging_steps": 10},
}
"""The defaults that are the same in every version and that no launcher or environment changes.

Lightning, Fabric and Accelerate take each of theirs from the environment too.
"""
_OLD_NAMES: Final = {
    "eval_strategy": "evaluation_strategy",
    "processing_class": "tokenizer",
    "use_cpu": "no_cuda",
}
_SETTERS: Final = (
    "set_training set_evaluate set_testing set_save set_logging set_optimizer set_lr_scheduler "
    "set_dataloader set_push_to_hub"
).split()
"""Methods of the arguments that set several options."""
_RECENT: Final = (
    "eval_strategy use_cpu gradient_checkpointing_kwargs accelerator_config "
    "eval_do_concat_batches torch_empty_cache_steps neftune_noise_alpha split_batches "
    "save_only_model average_tokens_across_devices train_sampling_strategy"
).split()
"""Options that no version of Transformers before 4.36 has."""
_SHORT: Final = "fast_dev_run limit_train_batches overfit_batches max_time".split()
"""Options of Lightning that cut a run short."""
_TRIAL: Final = 200
"""The number of steps below which a run only tries something."""
_PARSER: Final = re.compile(r"(?:transformers\.(?:\w+\.)*Hf|trl\.(?:\w+\.)*Trl)(?:Argument)?Parser")
_PARSES: Final = ("parse_json_file", "parse_yaml_file")
_PARSES_COMMAND: Final = "parse_args_and_config"
_COMMAND: Final = re.compile(_LIGHTNING + "LightningCLI")
_TAKES_CONFIGURATION: Final = (
    ("deepspeed.initialize", "config"),
    ("deepspeed.initialize", "config_params"),
    ("accelerate.DeepSpeedPlugin", "hf_ds_config"),
    ("accelerate.utils.DeepSpeedPlugin", "hf_ds_config"),
)
_PREDICTS: Final = ("predict", "test", "validate", "evaluate")
_TRAINS: Final = ("train", "fit", "hyperparameter_search")
_POSITIONS: Final = ("model", "args", "data_collator", "train_dataset", "eval_dataset")
_MISSING: Final = object()


class Setting(NamedTuple):
    """What an option certainly is: a Python literal, and where it is written.

    `node` is None for the default of a library.
    """

    value: Any
    node: cst.BaseExpression | None = None

    @property
    def is_default(self) -> bool:
        """Whether the script does not write the option."""
        return self.node is None

    def counts(self, most: int) -> bool:
        """Return whether the value is a whole number from 1 to `most`."""
        return type(self.value) is int and 1 <= self.value <= most


class TrainerArguments:
    """A call that configures a training: its framework, and what each option is."""

    def __init__(
        self,
        trainings: Trainings,
        call: cst.Call,
        framework: str,
        owner: cst.ClassDef | None,
        read: cst.Dict | None = None,
    ) -> None:
        self.call = call
        self.framework = framework
        self._owner = owner
        self._trainings = trainings
        self.read = read
        """The dictionary in the YAML or JSON file that gives the options instead of the call."""

    def setting(self, name: str) -> Setting | None:
        """Return what an option is, None where something out of sight may decide it."""
        written = self._trainings.written_later(self.call, name)
        if written is not None:
            return _literal(written)
        value = self._passed(name)
        if value.state is not State.ABSENT:
            return _literal(value)
        if self._owner is not None:
            declared = self._trainings.declared(self._owner, name)
            if declared is not None:
                return _literal(declared)
        default = _DEFAULTS.get(self.framework, {}).get(name, _MISSING)
        return None if default is _MISSING else Setting(default)

    def is_literal(self, name: str, *wanted: object) -> bool:
        """Return whether the script writes an option, as one of these literals."""
        found = self.setting(name)
        return (
            found is not None
            and not found.is_default
            and any(type(found.value) is type(one) and found.value == one for one in wanted)
        )

    def is_off(self, *names: str) -> bool:
        """Return whether no option of these names is, or may be, anything but off."""
        return all(
            self._trainings.written_later(self.call, name) is None
            and (
                (given := self._passed(name)).state is State.ABSENT
                or any(given.equals(one) for one in (None, False, "", "no"))
            )
            and (self._owner is None or self._trainings.declared(self._owner, name) is None)
            for name in names
        )

    @cached_property
    def is_recent(self) -> bool:
        """Whether an option in the call proves Transformers 4.36 or newer."""
        spelled = {arg.keyword.value for arg in self.call.args if arg.keyword is not None}
        return self.framework == "trl" or not spelled.isdisjoint(_RECENT)

    @property
    def accumulates(self) -> bool:
        """Whether several passes share an optimizer step, as far as the arguments say."""
        given = self.given("gradient_accumulation_steps")
        return given is not None and not self.is_literal("gradient_accumulation_steps", 1)

    @cached_property
    def is_trial(self) -> bool:
        """Whether the run is, or may be, cut short after few steps."""
        if self.framework == "lightning":
            return not self.is_off(*_SHORT) or not self.is_off("max_steps")
        steps = self.setting("max_steps")
        return steps is None or 0 < steps.value < _TRIAL

    def notes(self, *names: str) -> tuple[Note, ...]:
        """Return notes on where options are set that the call, or its file, does not spell out."""
        tree, files = self._trainings.tree, self._trainings.values.files
        found = ((name, self.setting(name)) for name in names)
        return tuple(
            Note(tree.span(each.node), f"`{name}` is set here{files.doubt(each.node)}")
            for name, each in found
            if each is not None and each.node is not None
            if self.given(name) is None or not tree.is_own(each.node)
        )

    def takes(self, name: str) -> bool:
        """Return whether an option can be added to the call: nothing else sets it."""
        found = self.setting(name)
        return self.read is None and found is not None and found.is_default

    @property
    def has_splat(self) -> bool:
        """Whether the call passes on `*args` or `**kwargs`."""
        return any(arg.star for arg in self.call.args)

    def given(self, name: str) -> cst.Arg | None:
        """Return the argument that spells an option out in the call."""
        values = self._trainings.values
        old = _OLD_NAMES.get(name, name)
        return values.argument_node(self.call, name) or values.argument_node(self.call, old)

    def _passed(self, name: str) -> Value:
        value = self._option(name)
        if value.state is State.ABSENT and name in _OLD_NAMES:
            value = self._option(_OLD_NAMES[name])
        return value

    def _option(self, name: str) -> Value:
        values = self._trainings.values
        found = values.argument(self.call, name)
        if found.state is State.ABSENT and self.read is not None:
            return values.entry(self.read, name)
        decided = found.state is State.ABSENT or found.is_literal
        return found if decided else self._configured(name) or found

    def _configured(self, name: str) -> Value | None:
        """Return what a configuration of Hydra has for an option, None if it gives none."""
        values = self._trainings.values
        given = values.argument_node(self.call, name)
        if given is not None:
            found = values.configurations.entry(given.value)
            return None if found is None else values.value_of(found)
        unpacked = [each.value for each in self.call.args if each.star]
        whole = values.configurations.entry(unpacked[0]) if len(unpacked) == 1 else None
        return values.entry(whole, name) if isinstance(whole, cst.Dict) else None


class TrainerCall(NamedTuple):
    """A call that makes the trainer of a framework, with the arguments that it certainly gets."""

    trainings: Trainings
    call: cst.Call
    framework: str
    arguments: TrainerArguments | None

    def argument(self, name: str) -> Value:
        """Return the value of an argument of the trainer itself."""
        values, at = self.trainings.values, self._position(name)
        found, old = values.argument(self.call, name, at), _OLD_NAMES.get(name)
        return values.argument(self.call, old) if found.state is State.ABSENT and old else found

    def given(self, name: str) -> cst.BaseExpression | None:
        """Return the expression that the call, or a dictionary of it, has for an argument."""
        values, old = self.trainings.values, _OLD_NAMES.get(name, name)
        found = values.expression(self.call, name, self._position(name))
        return found or values.expression(self.call, old)

    def _position(self, name: str) -> int | None:
        known = self.framework == "transformers" and name in _POSITIONS
        return _POSITIONS.index(name) if known else None


class Trainings(ValueAnalysis):
    """Finds the calls that configure trainings, and the trainers that get them."""

    def __init__(self, values: KnownValues, calls: Calls) -> None:
        super().__init__(values)
        self.calls = calls

    @cached_property
    def _all_arguments(self) -> tuple[TrainerArguments, ...]:
        made = (TrainerArguments(self, *each) for each in self._made(_ARGUMENTS))
        return (*made, *self._read(), *self._commanded(), *self._instantiated())

    @cached_property
    def _all_trainers(self) -> tuple[TrainerCall, ...]:
        return tuple(
            TrainerCall(self, call, framework, self._arguments(call, framework))
            for call, framework, _ in self._made(_TRAINERS)
        )

    def arguments(self, *frameworks: str) -> Iterator[TrainerArguments]:
        """Yield the calls that set the options of trainings under some frameworks."""
        known = (each for each in self._all_arguments if each.framework in frameworks)
        return (each for each in known if not self._only_predicts(each))

    def _only_predicts(self, arguments: TrainerArguments) -> bool:
        """Return whether all trainers that get some options predict, and train nothing."""
        made = [each.call for each in self._all_trainers if each.arguments is arguments]
        return bool(made) and all(
            self._calls(trainer, *_PREDICTS) and not self._calls(trainer, *_TRAINS)
            for trainer in made
        )

    def _calls(self, made: cst.Call, *methods: str) -> bool:
        """Return whether one of these methods is called on what a call makes."""
        return any(
            made is value
            for site in self.calls.of_methods(*methods)
            for value in self.origins.of(site.receiver).values
        )

    def trainers(self, *frameworks: str) -> Iterator[TrainerCall]:
        """Yield the calls that make a trainer of some frameworks."""
        return (each for each in self._all_trainers if each.framework in frameworks)

    def deepspeed(self) -> Iterator[tuple[cst.Arg, cst.Dict]]:
        """Yield the configurations of DeepSpeed, each with the argument that gives it."""
        given = [each.given("deepspeed") for each in self.arguments("transformers", "trl")]
        for name, word in _TAKES_CONFIGURATION:
            given += [self.values.argument_node(site.node, word) for site in self.calls.of(name)]
        for arg in filter(None, given):
            found = self.values.value_of(arg.value).node
            if isinstance(found, cst.Call):
                found = self.values.files.read_by(found)
            found = found if isinstance(found, cst.Dict) else self.values.files.named(arg.value)
            if found is not None:
                yield arg, found

    def _made(
        self, patterns: dict[str, re.Pattern[str]]
    ) -> list[tuple[cst.Call, str, cst.ClassDef | None]]:
        """Return the calls of classes with these names, and of those derived from them."""
        found: list[tuple[cst.Call, str, cst.ClassDef | None]] = []
        for name in self.calls.called:
            framework = _named(name, patterns)
            if framework:
                found += [(call.node, framework, None) for call in self.calls.of(name)]
        for owner in self.tree.all(cst.ClassDef):
            bases = self.functions.bases(owner) if owner.bases else []
            framework = next(filter(None, (_named(base, patterns) for base in bases)), "")
            if framework:
                found += [
                    (call, framework, owner)
                    for mention in self.functions.mentions(owner.name.value)
                    if isinstance(call := self.tree.parent(mention), cst.Call)
                    and call.func is mention
                    and self.functions.definition(mention) is owner
                ]
        return sorted(found, key=lambda each: self.tree.order(each[0]))

    def _read(self) -> Iterator[TrainerArguments]:
        """Yield the arguments that a parser of Transformers reads from a file of the project."""
        for site in self.calls.of_methods(*_PARSES, _PARSES_COMMAND):
            call, read = site.node, None
            if site.method == _PARSES_COMMAND:
                read = self.values.files.started()
            elif call.args:
                read = self.values.files.named(call.args[0].value)
            for parser in self._parsers(call) if read is not None else ():
                for parsed in self._parsed(parser):
                    owner = self.functions.definition(parsed)
                    found = (_named(each, _ARGUMENTS) for each in self.functions.classes(parsed))
                    framework = next(filter(None, found), "")
                    if framework:
                        known = owner if isinstance(owner, cst.ClassDef) else None
                        yield TrainerArguments(self, call, framework, known, read)

    def _commanded(self) -> Iterator[TrainerArguments]:
        """Yield the options that a command line of Lightning takes from a file of the project."""
        for name in filter(_COMMAND.fullmatch, self.calls.called):
            for site in self.calls.of(name):
                kwargs = site.argument("parser_kwargs").node
                parser = self.values.entry(kwargs, "fit").node if kwargs is not None else None
                files = [self.values.files.started()]
                for given in filter(None, (kwargs, parser)):
                    listed = self.values.entry(given, "default_config_files").node
                    paths = listed.elements if isinstance(listed, (cst.List, cst.Tuple)) else ()
                    files += [self.values.files.named(paths[0].value)] if len(paths) == 1 else []
                for read in files:
                    options = self.values.entry(read, "trainer").node if read is not None else None
                    if isinstance(options, cst.Dict):
                        yield TrainerArguments(self, site.node, "lightning", None, options)

    def _instantiated(self) -> Iterator[TrainerArguments]:
        """Yield the options of what Hydra makes of an entry of its configuration."""
        for site in self.calls.of(*INSTANTIATES):
            given = site.node.args[0].value if site.node.args else None
            read = self.values.configurations.entry(given) if given is not None else None
            if isinstance(read, cst.Dict):
                target = self.values.entry(read, "_target_").literal
                framework = _named(target, _ARGUMENTS) if isinstance(target, str) else ""
                if framework:
                    yield TrainerArguments(self, site.node, framework, None, read)

    def _parsers(self, call: cst.Call) -> Iterator[cst.Call]:
        receiver = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        for made in self.origins.of(receiver).values:
            if isinstance(made, cst.Call) and _PARSER.fullmatch(self.names.name(made.func) or ""):
                yield made

    def _parsed(self, parser: cst.Call) -> Iterator[cst.BaseExpression]:
        """Yield the classes whose fields a parser reads."""
        given = self.values.argument_node(parser, "dataclass_types", 0)
        if given is not None:
            known = self.values.value_of(given.value).node
            if isinstance(known, (cst.Tuple, cst.List)):
                yield from (each.value for each in known.elements)
            else:
                yield given.value

    def _arguments(self, call: cst.Call, framework: str) -> TrainerArguments | None:
        """Return the only arguments that a trainer can get."""
        if framework == "lightning":
            return next(each for each in self._all_arguments if each.call is call)
        given = self.values.argument_node(call, "args", 1)
        if given is None:
            return None
        read = self._unpacked(given.value)
        if read is not None:
            return read
        origin = self.origins.of(given.value)
        made = [
            each for each in self._all_arguments if any(each.call is one for one in origin.values)
        ]
        return made[0] if len(made) == len(origin.values) == 1 and origin.complete else None

    def _unpacked(self, node: cst.BaseExpression) -> TrainerArguments | None:
        """Return the arguments that a name gets out of what a parser reads."""
        binding = self.scopes.only(node)
        made = binding.value if binding.how is How.UNPACKED else None
        return next((one for one in self._all_arguments if one.read and one.call is made), None)

    def declared(self, owner: cst.ClassDef, name: str) -> Value | None:
        """Return the default that a class of the file, or one of its bases here, gives a field."""
        for line in self.functions.lineage(owner):
            for binding in self.scopes.scope_at(line).bindings.get(name, ()):
                if binding.value is None:
                    return Value(State.UNKNOWN)
                made = binding.value
                if not isinstance(made, cst.Call):
                    return self.values.value_of(made)
                return self.values.argument(made, "default")
        return None

    def written_later(self, call: cst.Call, name: str) -> Value | None:
        """Return what an assignment makes of an option afterwards, None where none may touch it."""
        found = None
        for target in self.functions.attributes(name):
            line = self.tree.parent(self.tree.parent(target))
            if not isinstance(line, (cst.Assign, cst.AugAssign)) or not self._may_be(
                target.value, call
            ):
                continue
            if not isinstance(line, cst.Assign) or not self._follows(line, call):
                return Value(State.UNKNOWN)
            found = self.values.value_of(line.value)
        for setter in self.calls.of_methods(*_SETTERS):
            if self._may_be(setter.receiver, call):
                return Value(State.UNKNOWN)
        return found

    def _may_be(self, node: cst.BaseExpression, call: cst.Call) -> bool:
        """Return whether an expression may be the object that a call makes."""
        origin = self.origins.of(node)
        if any(value is call for value in origin.values):
            return True
        return last_word(node).endswith("args") and not origin.complete

    def _follows(self, line: cst.Assign, call: cst.Call) -> bool:
        """Return whether a line runs whenever a call did, after it."""
        return self.scopes.blocks(line) == self.scopes.blocks(call) and (
            self.tree.order(line) > self.tree.order(call)
        )


def _named(name: str, patterns: dict[str, re.Pattern[str]]) -> str:
    """Return what defines a class of a qualified name, empty if nothing known does."""
    return next((one for one, pattern in patterns.items() if pattern.fullmatch(name)), "")


def _literal(value: Value) -> Setting | None:
    return Setting(value.literal, value.node) if value.is_literal else None
