"""Computations: calls that only compute a value from what they get."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.scope.libraries import DRAWN, FILLED
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import last_word

_COMPUTING: Final = frozenset(
    "float int round min max abs len sum list tuple dict bool zip enumerate sorted set any all "
    "str format repr type reversed pow divmod".split()
)
PURE: Final = frozenset(
    "sum mean std max min argmax argmin astype flatten ravel squeeze reshape transpose copy "
    "tolist item round items values keys get format float int long double size numpy cpu "
    "detach view eq ne any all nonzero join sqrt pow abs exp log log1p norm clamp clip softmax "
    "sigmoid mul div add sub unsqueeze double half bool masked_fill gather topk sort cumsum "
    "prod permute t T to dot cumprod argsort swapaxes var diff repeat take strip split lower "
    "upper replace startswith endswith count index".split()
)
_OF_TORCH: Final = frozenset({"torch", "torch.nn.functional", "torch.linalg"})
_NOT_COMPUTING: Final = frozenset({"torch.save", "torch.load", "torch.manual_seed"})
_SIZED: Final = (FILLED | DRAWN) - {"full"}
"""Functions of torch that get sizes, which the host must know."""
_COUNTING: Final = frozenset("one_hot topk split chunk narrow multinomial roll".split())
"""Functions of torch that get a tensor, and a count that the host must know."""
_ASKING: Final = frozenset({f"builtins.{each}" for each in "len type isinstance hasattr".split()})
_PURE_MODULES: Final = (
    "numpy.", "math.", "sklearn.metrics.", "scipy.", "skimage.", "statistics.", "itertools.",
    "collections.", "copy.", "cv2.", "PIL.Image.", "editdistance.", "Levenshtein.", "jiwer.",
    "nltk.translate.", "sacrebleu.", "munch.", "easydict.", "addict.", "types.SimpleNamespace",
)  # fmt: skip
_EFFECTS: Final = (
    "numpy.save", "numpy.random", "numpy.put", "numpy.copyto", "numpy.testing", "scipy.io.",
    "skimage.io.", "cv2.imwrite", "cv2.imshow", "cv2.waitKey", "cv2.Video", "cv2.destroy",
)  # fmt: skip
_METRICS: Final = frozenset(
    "metric score accuracy acc precision recall auc iou dice psnr ssim mae mse rmse wer cer "
    "bleu kappa".split()
)
"""The last words of functions that measure values on the host."""
_LOSSES: Final = frozenset({"criterion", "loss"})
_RECORDS: Final = frozenset({"typing.NamedTuple", "dataclasses.dataclass"})
FILLS: Final = ("append", "extend", "update")


class Computations(Analysis):
    """Separates calls that only compute from those that do something with a value."""

    def pass_on(self, call: cst.Call, child: cst.CSTNode, depth: int = CALLED) -> bool:
        """Return whether a call only computes another value from its arguments."""
        if child is call.func:
            return True
        func = call.func
        name = self.names.name(func) or ""
        module, _, last = name.rpartition(".")
        if module == "builtins":
            return last in _COMPUTING
        if module in _OF_TORCH:
            counts = last in _SIZED or (last in _COUNTING and child not in call.args[:1])
            if counts and isinstance(child, cst.Arg):
                return False
            return last.islower() and name not in _NOT_COMPUTING
        if name.startswith(_PURE_MODULES):
            return not name.startswith(_EFFECTS)
        if isinstance(func, cst.Attribute) and not name:
            if func.attr.value in ("format", "join"):
                return True
        callee = self.functions.callee(call)
        if callee is None:
            return self._measures(call) or self._is_record(self.functions.definition(func))
        return self._is_pure(callee, depth - 1)

    def _is_record(self, made: cst.CSTNode | None) -> bool:
        """Return whether a class only holds the values that its instances are made of."""
        if not isinstance(made, cst.ClassDef):
            return False
        return not _RECORDS.isdisjoint([*self.functions.bases(made), *self.names.marks(made)])

    def _measures(self, call: cst.Call) -> bool:
        """Return whether an unseen function is named like a metric, and its result is used."""
        func = call.func
        if isinstance(self.tree.parent(call), cst.Expr):
            return False
        if not _LOSSES.isdisjoint(words(last_word(func))):
            return True
        last = words(func.value)[-1:] if isinstance(func, cst.Name) else ()
        return not _METRICS.isdisjoint(last)

    def _is_pure(self, function: cst.FunctionDef, depth: int) -> bool:
        """Return whether a function only computes its return value."""
        if not depth or self.functions.is_generator(function):
            return False
        if not self.functions.returns(function):
            return False
        for target in self.tree.within(function.body, cst.AssignTarget):
            if isinstance(target.target, cst.Attribute):
                return False
        if any(True for _ in self.tree.within(function.body, cst.Global)):
            return False
        raised = list(self.tree.within(function.body, cst.Raise))
        calls = self.tree.within(function.body, cst.Call)
        return all(
            self.computes(call, depth)
            for call in calls
            if not any(self.tree.inside(call, each) for each in raised)
        )

    def computes(self, call: cst.Call, depth: int = CALLED) -> bool:
        """Return whether a call in a function, or of a comprehension, has no other effect."""
        name = self.names.name(call.func) or ""
        if not name and isinstance(call.func, cst.Attribute):
            return call.func.attr.value in (*PURE, *FILLS)
        if name == "builtins.range" or name in _ASKING or name.startswith("torch.tensor"):
            return True
        return self.pass_on(call, call, depth)
