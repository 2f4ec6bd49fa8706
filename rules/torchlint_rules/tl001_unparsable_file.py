"""TL001: a file that cannot be parsed."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Rule, Script


class UnparsableFile(Rule):
    """
    ## What it does
    Flags a file that cannot be parsed, at the place where the parser gave up: a syntax error,
    Python 2, bytes that are no text in the file's encoding, code that is nested too deeply.

    ## Why it is slow
    It may not be: nobody can tell. No other rule looks at such a file, so it is named here and
    not passed over in silence. It is on whatever is selected, unless it is ignored.

    ## When not to
    Ignore it for files that are not meant to be run by this Python, such as templates:
    `per-file-ignores = {"templates/*" = ["TL001"]}`, or a line `# torchlint: ignore-file[TL001]`.

    ## Fix safety
    There is no fix. Where the cause is well known, the message says what to write: in
    `x.cuda(async=True)`, `async` has been a keyword since Python 3.7.
    """

    code = "TL001"
    name = "unparsable-file"
    summary = "this file cannot be parsed, so nothing else in it was checked"
    impact = "high"
    safety = None
    needs = ("torch",)

    invalid = {
        "`async` became a keyword": """
              import torch
              def move(batch):
            !     return batch.cuda(async=True)
            """,
        "a print statement": """
              import torch
            ! print "loss", 0.5
            """,
        "a bracket that is never closed": """
              import torch
            ! x = torch.zeros((2, 3)
            """,
        "a merge conflict": """
              import torch
            ! <<<<<<< HEAD
              lr = 0.1
              =======
              lr = 0.2
              >>>>>>> theirs
            """,
    }
    valid = {
        "an invalid escape sequence is a warning, not an error": r"""
            import torch
            pattern = "\d+"
            """,
        "`return` outside a function still parses": """
            import torch
            return torch.zeros(1)
            """,
        "the file says that it is not to be parsed": """
            # torchlint: ignore-file[TL001]
            import torch
            batch.cuda(async=True)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Find nothing: a file with a script parses, and the engine reports one without."""
        yield from ()
