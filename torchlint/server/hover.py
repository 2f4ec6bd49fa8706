"""The page of a rule, shown on its findings and on its code in comments."""

from __future__ import annotations

from lsprotocol import types

from torchlint.edit import Span
from torchlint.measurement import measurements_of
from torchlint.registry import Registry, RegistryError
from torchlint.report.briefpage import hover_page
from torchlint.server.checked import Checked
from torchlint.server.positions import Positions
from torchlint.suppress import find_suppressions


def hover(
    checked: Checked, positions: Positions, params: types.HoverParams, registry: Registry
) -> types.Hover | None:
    """Return the pages of the rules at a position, None where there is none."""
    at = positions.offset(params.text_document.uri, params.position)
    if at is None:
        return None
    found = {**_codes_in_comments(checked, at), **_codes_of_findings(checked, at)}
    if not found:
        return None
    pages = "\n---\n\n".join(_page(registry, code) for code in found)
    span = Span(min(each.start for each in found.values()), max(e.end for e in found.values()))
    return types.Hover(
        contents=types.MarkupContent(types.MarkupKind.Markdown, pages),
        range=positions.place(span).range,
    )


def _codes_of_findings(checked: Checked, at: int) -> dict[str, Span]:
    return {
        finding.code: finding.span
        for finding in checked.findings
        if finding.span.start <= at <= finding.span.end
    }


def _codes_in_comments(checked: Checked, at: int) -> dict[str, Span]:
    if "#" not in checked.source.line(checked.source.position(at).row):
        return {}
    return {
        code: word.span
        for mark in find_suppressions(checked.source, checked.rules.known).all
        for word in mark.words
        for code in sorted(word.codes)
        if word.span.start <= at <= word.span.end and len(word.codes) == 1
    }


def _page(registry: Registry, code: str) -> str:
    try:
        rule = registry.find(code).load()
    except RegistryError as error:
        return str(error)
    return hover_page(rule, measurements_of(rule))
