"""`torchlint new`: writes a new rule and its fixture, or a new pack of rules."""

from torchlint.scaffold.writing import ScaffoldError, free_code, write_pack, write_rule

__all__ = ["ScaffoldError", "free_code", "write_pack", "write_rule"]
