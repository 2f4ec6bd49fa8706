"""The JSON schema of the settings, made from the table that validates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchlint.config.settings import key_of
from torchlint.config.values import KINDS


def schema(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of `torchlint.toml`; `descriptions` are by field name."""
    extend = {"type": "string", "minLength": 1, "description": "A file to take settings from."}
    properties = {"extend": extend}
    for option, kind in KINDS.items():
        told = {"description": descriptions[option]} if option in descriptions else {}
        properties[key_of(option)] = {**kind.schema, **told}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "torchlint",
        "description": "Settings of torchlint, in torchlint.toml or under tool.torchlint.",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "additionalProperties": False,
    }
