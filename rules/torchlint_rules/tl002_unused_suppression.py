"""TL002: a suppression comment that suppresses nothing."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Rule, Safety, Script


class UnusedSuppression(Rule):
    """
    ## What it does
    Flags a comment, or a code in a comment, that silences a rule where that rule finds nothing.

    ## Why it is slow
    It is not, today. A suppression that outlives its reason hides the next finding on that line.

    ## When not to
    Keep it if other versions of torch, for which the rule does speak, are checked as well. Only
    the codes of rules that were applied are judged; a bare `# noqa` and other tools' codes
    never are.

    ## Fix safety
    Exact: nothing but the comment changes.
    """

    code = "TL002"
    name = "unused-suppression"
    summary = "this comment suppresses nothing"
    impact = "low"
    safety = Safety.EXACT
    needs = ("noqa", "NOQA", "torchlint")

    invalid = {
        "the code is no longer found on the line": """
            # select: TL801
            - step()  # torchlint: ignore[TL801] we look for NaNs
            + step()
            """,
        "one of two codes is of no use": """
            # select: TL801
            - step()  # noqa: E501, TL801
            + step()  # noqa: E501
            """,
        "a name in place of a code": """
            # select: TL801
            - step()  # noqa: anomaly-detection
            + step()
            """,
        "a whole file with nothing to silence": """
            # select: TL801
            - # torchlint: ignore-file[TL801]
              step()
            """,
        "the rest of the comment stays": """
            # select: TL801
            - step()  # type: ignore # noqa: TL801 # pragma: no cover
            + step()  # type: ignore # pragma: no cover
            """,
        "a code that no rule has": """
            - step()  # noqa: TL999
            + step()
            """,
        "on its own line inside a call": """
            # select: TL801
              step(
            -     # torchlint: ignore[TL801]
                  1,
              )
            """,
    }
    valid = {
        "another tool's code is nobody's business": """
            import os  # noqa: F401
            """,
        "a bare noqa may be meant for another tool": """
            x = 1  # noqa
            """,
        "a rule that was not applied is not judged": """
            x = 1  # noqa: TL801
            """,
        "a suppression in a string is none": """
            # select: TL801
            text = "# noqa: TL801"
            """,
        "a bare mark is judged only when every rule was applied": """
            x = 1  # torchlint: ignore
            """,
        "the comment says that it may be idle": """
            # select: TL801
            step()  # torchlint: ignore[TL801, TL002] found under older versions of torch
            """,
        "it does silence something": """
            # select: TL801
            import torch
            torch.autograd.set_detect_anomaly(True)  # noqa: TL801
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Find nothing: the engine alone knows which findings the comments silenced."""
        yield from ()
