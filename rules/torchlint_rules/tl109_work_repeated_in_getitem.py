"""TL109: work that a dataset does again for every item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Binding, Finding, ItemCode, Per, Rule, Script, regex

_READS: Final = regex(
    r"(?:json|pickle|yaml|joblib|torch|dill)\.(?:safe_|full_|unsafe_)?load|"
    r"numpy\.(?:load|loadtxt|genfromtxt)|pandas\.read_\w+|scipy\.io\.loadmat|librosa\.load|"
    r"PIL\.Image\.open|cv2\.imread|nibabel\.load|soundfile\.read|torchaudio\.load|"
    r"torchvision\.io\.(?:read_image|decode_image)|"
    r"h5py\.File|lmdb\.open|sqlite3\.connect|zipfile\.ZipFile|tarfile\.open"
)
_LISTS: Final = frozenset("os.listdir os.scandir os.walk glob.glob glob.iglob".split())
_LIST_METHODS: Final = ("glob", "rglob", "iterdir")
_BUILDS: Final = regex(r"transformers\.\w+\.from_pretrained|torchvision\.models\.[a-z]\w*")
_WHOLE: Final = ("read", "readlines", "read_text", "read_bytes")
_TOKENISES: Final = frozenset("encode encode_plus tokenize batch_encode_plus __call__".split())
_NO_NETWORKS: Final = frozenset(
    "transform transforms augment augmentation aug normalize resize criterion encoder decoder".split()
)


class WorkRepeatedInGetitem(Rule):
    """
    ## What it does
    Flags what a dataset's `__getitem__` (or a collate function) does for every item though it comes
    out the same every time: reading a file whose name does not depend on the item, listing a
    directory, loading a network, running a tokenizer or a network on the item itself.

    ## Why it is slow
    A loader asks for every item in every epoch. A table that is read for one row of it is read as
    often as it has rows, times the epochs, and a directory is listed as often as it has files.

    ## When not to
    Work on what is random must not be kept, and what does not fit into memory cannot be: the rule
    says nothing of reading and decoding the item's own file. What is read on first use and kept is
    fine. Remember that each worker has a memory of its own: what one keeps the others do not see.

    ## Fix safety
    There is no fix: what to keep, in memory or on disk, depends on its size.
    """

    code = "TL109"
    name = "work-repeated-in-getitem"
    summary = "every item does the same work again"
    impact = "high"
    safety = None
    articles = ("S1",)
    needs = ("__getitem__", "collate")

    invalid = {
        "a table is read for one row": """
              import pandas as pd
              import torch
              from torch.utils.data import Dataset
              class Rows(Dataset):
                  def __init__(self, path):
                      self.path = path
                  def __getitem__(self, i):
            !         table = pd.read_csv(self.path)
                      return torch.tensor(table.iloc[i].values)
            """,
        "annotations, through an open file": """
              import json
              import torch.utils.data as td
              LABELS = "labels.json"
              class Labels(td.Dataset):
                  def __getitem__(self, i):
                      with open(LABELS) as file:
            !             labels = json.load(file)
                      return labels[i]
            """,
        "one array of many": """
              import numpy as np
              import torch
              from torch.utils.data import Dataset
              class Rows(Dataset):
                  def __getitem__(self, i):
            !         return torch.from_numpy(np.load(self.root + "/x.npy")[i])
            """,
        "the lines of a list": """
              import torch
              from torch.utils.data import Dataset
              class Lines(Dataset):
                  def __getitem__(self, i):
            !         return open(self.path).readlines()[i]
            """,
        "a directory is listed": """
              import os
              from PIL import Image
              from torch.utils.data import Dataset
              class Images(Dataset):
                  def __init__(self, root):
                      self.root = root
                  def __getitem__(self, i):
            !         name = sorted(os.listdir(self.root))[i]
                      return Image.open(os.path.join(self.root, name))
            """,
        "a directory is searched for one name": """
              from pathlib import Path
              from PIL import Image
              from torch.utils.data import Dataset
              class Images(Dataset):
                  def __init__(self, root, names):
                      self.root, self.names = Path(root), names
                  def __getitem__(self, i):
                      name = self.names[i]
            !         files = list(self.root.glob(name + ".*"))
                      return Image.open(files[0])
            """,
        "in a method that it calls": """
              import pandas as pd
              import torch
              from torch.utils.data import Dataset
              class Rows(Dataset):
                  def _table(self, path):
            !         return pd.read_parquet(path)
                  def __getitem__(self, i):
                      return torch.tensor(self._table(self.path).iloc[i].values)
            """,
        "a tokenizer is loaded, and run": """
              import torch
              from torch.utils.data import Dataset
              from transformers import AutoTokenizer
              class Texts(Dataset):
                  def __getitem__(self, i):
            !         tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
            !         return torch.tensor(tokenizer.encode(self.texts[i]))
            """,
        "texts are tokenised in every epoch": """
              import torch
              from torch.utils.data import Dataset
              class Texts(Dataset):
                  def __init__(self, texts, tokenizer):
                      self.texts, self.tokenizer = texts, tokenizer
                  def __getitem__(self, i):
            !         found = self.tokenizer(self.texts[i], truncation=True)
                      return torch.tensor(found["input_ids"])
            """,
        "a network runs on single items": """
              import torch
              from torch.utils.data import Dataset
              class Features(Dataset):
                  def __init__(self, images, model):
                      self.images, self.model = images, model.eval()
                  def __getitem__(self, i):
                      with torch.no_grad():
            !             return self.model(self.images[i])
            """,
        "in a collate function": """
              import pickle
              import torch
              def collate_fn(rows):
            !     vocabulary = pickle.load(open("vocabulary.pkl", "rb"))
                  return torch.tensor([vocabulary[row] for row in rows])
            """,
    }
    valid = {
        "the item's own file": """
            import numpy as np
            from PIL import Image
            from torch.utils.data import Dataset
            class Images(Dataset):
                def __getitem__(self, i):
                    path, label = self.rows[i]
                    with open(path, "rb") as file:
                        image = Image.open(file).convert("RGB")
                    return image, np.load(path.replace("jpg", "npy")), label
            """,
        "read once": """
            import pandas as pd
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __init__(self, path):
                    self.table = pd.read_csv(path)
                def __getitem__(self, i):
                    return self.table.iloc[i].values
            """,
        "read on first use": """
            import h5py
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __getitem__(self, i):
                    if self.file is None:
                        self.file = h5py.File(self.path, "r")
                    return self.file["x"][i]
            """,
        "kept by a cache": """
            import functools
            import numpy as np
            from torch.utils.data import Dataset
            @functools.lru_cache(maxsize=None)
            def table(path):
                return np.load(path)
            class Rows(Dataset):
                def __getitem__(self, i):
                    return table(self.path)[i]
            """,
        "mapped, which reads nothing but the row": """
            import numpy as np
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __getitem__(self, i):
                    return np.load(self.path, mmap_mode="r")[i]
            """,
        "only the lines that the item needs": """
            import pandas as pd
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __getitem__(self, i):
                    return pd.read_csv(self.path, skiprows=i * 10, nrows=10).values
            """,
        "a part of the file, found by its place": """
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __getitem__(self, i):
                    with open(self.path, "rb") as file:
                        file.seek(i * 100)
                        return file.read(100)
            """,
        "a search for the item's own files": """
            import glob
            from torch.utils.data import Dataset
            class Scans(Dataset):
                def __getitem__(self, i):
                    uid = self.rows[i].uid
                    return glob.glob("data/*/{}.mhd".format(uid))[0]
            """,
        "the frames of the item's own folder": """
            import os
            from torch.utils.data import Dataset
            class Videos(Dataset):
                def __getitem__(self, i):
                    folder = os.path.join(self.root, self.names[i])
                    return sorted(os.listdir(folder))
            """,
        "another item of the own choice is read for every item": """
            import random
            from PIL import Image
            from torch.utils.data import Dataset
            class Pairs(Dataset):
                def __getitem__(self, i):
                    other = random.choice(self.paths)
                    return Image.open(self.paths[i]), Image.open(other)
            """,
        "texts that are drawn at random are other texts each time": """
            import random
            import torch
            from torch.utils.data import Dataset
            class Texts(Dataset):
                def __getitem__(self, i):
                    words = self.texts[i].split()
                    random.shuffle(words)
                    return torch.tensor(self.tokenizer.encode(" ".join(words)))
            """,
        "transforms, also as a network": """
            import torch
            from torch import nn
            from torch.utils.data import Dataset
            class Images(Dataset):
                def __init__(self, images, *steps):
                    self.images, self.transform = images, nn.Sequential(*steps)
                def __getitem__(self, i):
                    return self.transform(self.images[i])
            """,
        "a list of networks is no dataset": """
            import torch
            class Checkpoints:
                def __getitem__(self, i):
                    return torch.load(self.path)[i]
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what every item, or every batch, does again."""
        seen: set[int] = set()
        for code in script.items():
            if code.per is Per.STREAM:
                continue
            for call, message in _repeated(script, code):
                if id(call) not in seen:
                    seen.add(id(call))
                    yield Finding(self.code, script.span(call), message)


def _repeated(script: Script, code: ItemCode) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that do the same for each item, with what there is to say."""
    one = "batch" if code.per is Per.BATCH else "item"
    bodies = [each for each in script.functions.reached(code.node) if not _is_cached(script, each)]
    drawn = any(script.datasets.work.drawn(body) for body in bodies)
    for body in bodies:
        for call in script.functions.own(body, cst.Call):
            what = _constant_work(script, call)
            if what:
                if not _is_kept(script, call) and not _varies(
                    script, _worked_on(script, call), set()
                ):
                    yield call, f"`{code.label}` {what} again for each {one}; do it once, before"
            elif code.per is Per.ITEM and not drawn and not _is_kept(script, call):
                work = _item_work(script, call)
                if work:
                    yield call, f"`{code.label}` {work}"


def _constant_work(script: Script, call: cst.Call) -> str:
    """Say what dear work a call does if what it works on is the same each time."""
    func = call.func
    name = script.name(func) or ""
    word = script.code(func)
    if name in _LISTS:
        return f"lists the directory (`{word}`)"
    if _BUILDS.fullmatch(name):
        return f"loads `{word}`"
    if _READS.fullmatch(name):
        mapped = script.call(call).given("mmap_mode", 1) is not None
        return "" if mapped and name == "numpy.load" else f"reads the same file (`{word}`)"
    if isinstance(func, cst.Attribute) and not name:
        if func.attr.value in _LIST_METHODS:
            return f"lists the directory (`{word}`)"
        if func.attr.value in _WHOLE and not call.args and _opens(script, func.value):
            return f"reads the same file (`{word}`)"
    return ""


def _worked_on(script: Script, call: cst.Call) -> cst.BaseExpression:
    """Give what a call works on: of a search in a directory the directory."""
    func = call.func
    if isinstance(func, cst.Attribute) and func.attr.value in _LIST_METHODS:
        return func.value if script.name(func) is None else call
    return call


def _opens(script: Script, node: cst.BaseExpression) -> bool:
    """Whether an expression is a file that is opened to be read as a whole."""
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        value = bindings[0].value if len(bindings) == 1 else None
        return value is not None and isinstance(value, cst.Call) and _opens(script, value)
    return isinstance(node, cst.Call) and script.name(node.func) in (
        "builtins.open",
        "pathlib.Path",
    )


def _item_work(script: Script, call: cst.Call) -> str:
    """Say what a call works out of one item that could be worked out before."""
    func = call.func
    said = func.value if isinstance(func, cst.Attribute) else func
    method = func.attr.value if isinstance(func, cst.Attribute) else ""
    for node, ran in ((func, "__call__"), (said, method)):
        last = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
        if not isinstance(last, str) or "tokenizer" not in script.words(last):
            continue
        if ran in _TOKENISES and script.definition(func) is None:
            return (
                f"runs `{script.code(node)}` on each item in every epoch; tokenise all items once"
            )
    if (script.name(func) or "").startswith("nltk.tokenize."):
        return f"runs `{script.code(func)}` on each item in every epoch; tokenise all items once"
    network = script.module_call(call)
    if not isinstance(network, cst.Attribute) or not script.words(network.attr.value):
        return ""
    if not _NO_NETWORKS.isdisjoint(script.words(network.attr.value)):
        return ""
    return (
        f"runs `{script.code(network)}` on single items; run it on whole batches in the loop, or "
        "once for all items and keep the result"
    )


# -- what is the same each time -----------------------------------------------


def _varies(script: Script, node: cst.CSTNode, seen: set[int]) -> bool:
    """Whether an expression depends on the item, or is drawn at random."""
    for call in script.within(node, cst.Call):
        if script.datasets.work.drawn(script.statement(call)):
            return True
    for name in script.within(node, cst.Name):
        for binding in script.scopes.reaching(name):
            if id(binding) not in seen:
                seen.add(id(binding))
                if _binding_varies(script, binding, seen):
                    return True
    return any(
        script.functions.attribute(held)
        and all(
            script.function(binding.node) is script.function(node)
            for binding in script.functions.attribute(held)
        )
        for held in script.within(node, cst.Attribute)
    )


def _binding_varies(script: Script, binding: Binding, seen: set[int]) -> bool:
    if isinstance(binding.node, cst.Param):
        if script.functions.owner_of_self(binding.node) is not None:
            return False
        given = script.functions.given(binding.node)
        return not given or any(_varies(script, one, seen) for one in given)
    if binding.value is None or script.function(binding.node) is None:
        return binding.value is None and isinstance(binding.node, cst.ExceptHandler)
    return _varies(script, binding.value, seen)


def _is_cached(script: Script, body: cst.CSTNode) -> bool:
    """Whether a decorator keeps what a function returns."""
    decorators = body.decorators if isinstance(body, cst.FunctionDef) else ()
    return any("cache" in script.code(each.decorator) for each in decorators)


def _is_kept(script: Script, call: cst.Call) -> bool:
    """Whether a call stands in a branch that keeps its result in the object, or runs rarely."""
    branch: cst.CSTNode | None = script.parent(call)
    while branch is not None and not isinstance(branch, (cst.FunctionDef, cst.Lambda)):
        if isinstance(branch, (cst.If, cst.ExceptHandler, cst.IfExp)):
            return True
        branch = script.parent(branch)
    return any(
        script.code(each.target).startswith("self.")
        for line in script.within(script.statement(call), cst.Assign)
        for each in line.targets
    )
