"""TL305: convolutions of one size without cuDNN's autotuner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Safety, Script, State, regex
from torchlint_rules._cuda import (
    in_environment,
    may_be_cuda,
    named_convolutional,
    place,
    setting,
    trains,
)

_SWITCH: Final = "torch.backends.cudnn.benchmark"
_LINE: Final = "{torch}.backends.cudnn.benchmark = True"
_CONVOLUTIONS: Final = frozenset(
    f"torch.nn.{word}" for word in ("Conv2d", "Conv3d", "ConvTranspose2d", "ConvTranspose3d")
)
_VARYING: Final = regex(
    r"collate_fn|multi_?scale|multiscale|detection|rcnn|\byolo|bounding|\bbbox|pad_sequence|"
    r"pack_padded|bucket|batch_sampler|keep_ratio|torchaudio|librosa|spectrogram|"
    r"progressive|random_?size(?!dcrop)|random_?resolution|style_?(?:image|transfer)|content_?image"
)
_REPRODUCIBLE: Final = regex(
    r"deterministic|reproducib|seed_everything|set_seed|seed_all|set_random_seed|setup_seed|fix_seed"
)
_SEEDERS: Final = frozenset({
    "random.seed", "numpy.random.seed", "torch.manual_seed", "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
})  # fmt: skip
_BENCHMARK: Final = regex("benchmark")


class CudnnAutotunerOff(Rule):
    """
    ## What it does
    Flags a script that trains a convolutional network on images of one size and leaves
    `torch.backends.cudnn.benchmark` off.

    ## Why it is slow
    cuDNN knows several algorithms for a convolution and by default guesses which to use. With the
    autotuner it measures them once for each shape and keeps the fastest: 70 % more forward passes
    a second, and 27 % more whole steps, were published for a single convolution.

    ## When not to
    Leave it off where shapes change from batch to batch, for then it measures again and again:
    detection, several scales, audio of any length. An odd last batch costs one more measurement.
    Leave it off where runs must repeat bit for bit.

    ## Fix safety
    Unsafe: which algorithm wins may differ from run to run, and with it the last digits.
    """

    code = "TL305"
    name = "cudnn-autotuner-off"
    summary = "cuDNN guesses the algorithm for convolutions of one size"
    impact = "medium"
    safety = Safety.UNSAFE
    after = ("TL701",)
    articles = ("S3.6",)
    needs = (".backward(",)

    invalid = {
        "behind the imports; told where the network moves": """
              import torch
              from torch import nn
              from torch.utils.data import DataLoader
            +
            + torch.backends.cudnn.benchmark = True

              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            - model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 10)).to(device)
            + model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 10)).to(device)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              criterion = nn.CrossEntropyLoss()
              for x, y in DataLoader(images, batch_size=64, shuffle=True):
                  loss = criterion(model(x.to(device)), y.to(device))
                  loss.backward()
                  optimizer.step()
            """,
        "a network of torchvision, an odd last batch, a single seed": """
              import torch
              import torchvision
              from torch.utils.data import DataLoader
            +
            + torch.backends.cudnn.benchmark = True

              def main(images):
                  torch.manual_seed(0)
                  model = torchvision.models.resnet18()
            -     model.cuda()
            +     model.cuda()
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  loader = DataLoader(images, 64, drop_last=False)
                  for x, y in loader:
                      loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
                      optimizer.step()

              if __name__ == "__main__":
                  main(None)
            """,
        "a network of one's own, by its name": """
              import torch
              from torch.utils.data import DataLoader
              from models.resnet import resnet20
            +
            + torch.backends.cudnn.benchmark = True

            - model = resnet20().cuda()
            + model = resnet20().cuda()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in DataLoader(images, batch_size=args.batch_size):
                  loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
                  optimizer.step()
            """,
        "a generator, by its name; crops are of one size": """
              import torch
              from models import *
              from torch.utils.data import DataLoader
              from torchvision import transforms
            +
            + torch.backends.cudnn.benchmark = True

              crop = transforms.RandomSizedCrop(224)
            - generator = GeneratorUNet().cuda()
            + generator = GeneratorUNet().cuda()
              optimizer = torch.optim.Adam(generator.parameters())
              for x, y in DataLoader(images, batch_size=args.batch_size):
                  loss = torch.nn.functional.l1_loss(generator(x.cuda()), y.cuda())
                  loss.backward()
                  optimizer.step()
            """,
        "switched off by hand, and nothing says why": """
              import torch
              import torch.backends.cudnn as cudnn
              from torch.utils.data import DataLoader
            - cudnn.benchmark = False
            + cudnn.benchmark = True
              model = torch.nn.Conv2d(3, 8, 3)
            - model.cuda()
            + model.cuda()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in DataLoader(images, batch_size=8):
                  loss = (model(x.cuda()) - y.cuda()).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
    }
    valid = {
        "switched on": """
            import torch
            from torch.utils.data import DataLoader
            torch.backends.cudnn.benchmark = True
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "an argument decides": """
            import torch
            from torch.utils.data import DataLoader
            torch.backends.cudnn.benchmark = args.benchmark
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "runs must repeat": """
            import torch
            from torch.utils.data import DataLoader
            torch.backends.cudnn.deterministic = True
            torch.backends.cudnn.benchmark = False
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "cuDNN, which has the tuner, is switched off": """
            import torch
            from torch.utils.data import DataLoader
            torch.backends.cudnn.enabled = False
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "every generator is seeded, for runs that repeat": """
            import random
            import torch
            from torch.utils.data import DataLoader
            random.seed(0)
            torch.manual_seed(0)
            torch.cuda.manual_seed_all(0)
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "batches are put together by hand, from images of any size": """
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8, collate_fn=pad):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "one image at a time, each may have its own size": """
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "several scales": """
            import random
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                x = multiscale(x, random.choice([224, 256]))
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "images are resized inside the loop": """
            import torch
            import torch.nn.functional as F
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                x = F.interpolate(x, size=pick())
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "audio of any length": """
            import torch
            import torchaudio
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(1, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(sounds, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "no loader shows what a batch is": """
            import torch
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in stream():
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "nothing convolves": """
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Linear(3, 8).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "nothing here runs on a GPU": """
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(images, batch_size=8):
                loss = (model(x) - y).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "networks that only infer see any shape": """
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            with torch.no_grad():
                for x, y in DataLoader(images, batch_size=8):
                    print(model(x.cuda()).shape)
            """,
        "Lightning's trainer has an argument for it": """
            import lightning as L
            import torch
            from torch.utils.data import DataLoader
            model = torch.nn.Conv2d(3, 8, 3).cuda()
            for x, y in DataLoader(images, batch_size=8):
                model(x.cuda()).sum().backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag a program that trains a convolutional network on images of one size."""
        if not may_be_cuda(script) or in_environment(script):
            return
        if not _convolves(script) or not _has_one_size(script):
            return
        if script.vocabulary.has_lowered(_VARYING) or _wants_to_repeat(script):
            return
        switch = _switched_off(script)
        if switch is None and script.vocabulary.has(_BENCHMARK):
            return
        node = place(script) if trains(script) else None
        if node is None:
            return
        edits = _switched_on(script, switch)
        fix = None
        if edits is not None:
            because = "which algorithm is fastest may differ from run to run"
            fix = Fix.unsafe("Let cuDNN measure its algorithms", edits, because=because)
        message = (
            "cuDNN guesses how to convolve images of one size: "
            "`torch.backends.cudnn.benchmark = True` lets it measure, and keep the fastest way"
        )
        yield Finding(self.code, script.span(node), message, fix)


def _wants_to_repeat(script: Script) -> bool:
    """Whether runs of a script are meant to repeat bit for bit."""
    if script.vocabulary.has(_REPRODUCIBLE) or any(True for _ in script.determinism.settings()):
        return True
    seeded = {script.name(call.func) for call in script.method_calls("seed", "manual_seed")}
    seeded |= {script.name(call.func) for call in script.method_calls("manual_seed_all")}
    return len(seeded & _SEEDERS) > 1


def _switched_off(script: Script) -> cst.Assign | None:
    """Give the one assignment that switches the autotuner off."""
    found = [
        assign
        for assign in script.all(cst.Assign)
        for target in assign.targets
        if isinstance(target.target, cst.Attribute)
        and target.target.attr.value == "benchmark"
        and script.name(target.target.value) == "torch.backends.cudnn"
    ]
    off = [each for each in found if script.code(each.value) == "False"]
    return off[0] if len(off) == len(found) == 1 else None


def _convolves(script: Script) -> bool:
    """Whether the networks of a file are convolutional, by their names or by their layers."""
    return named_convolutional(script) or not _CONVOLUTIONS.isdisjoint(script.called)


def _has_one_size(script: Script) -> bool:
    """Whether every loader stacks several samples, which must then be of one size."""
    loaders = list(script.calls("torch.utils.data.DataLoader"))
    if not loaders or any(
        call.has_splat and call.given("batch_size", 1) is None for call in loaders
    ):
        return bool(loaders) and _splats_are_batches(script)
    sizes = [call.argument("batch_size", 1) for call in loaders]
    if any(size.state is State.ABSENT or size.equals(1) for size in sizes):
        return False
    return not _resizes(script)


def _splats_are_batches(script: Script) -> bool:
    """Whether loaders whose arguments come from dictionaries are given a batch size there."""
    return "batch_size" in script.source.text and not _resizes(script)


def _resizes(script: Script) -> bool:
    """Whether a training loop resizes what it trains on."""
    return any(
        (script.name(call.func) or "").startswith("torch.nn.functional.interpolate")
        for step in script.steps.all
        for loop in script.loops_around(step.backward)
        for call in script.within(loop.node.body, cst.Call)
    )


def _switched_on(script: Script, switch: cst.Assign | None) -> Edits | None:
    if switch is not None:
        return script.rewrite.replace(switch.value, "True")
    return setting(script, _LINE)
