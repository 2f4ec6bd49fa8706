"""`torchlint new`: writes a new rule and its fixture, or a new pack of rules."""

from torchlint.scaffold.packs import write_pack
from torchlint.scaffold.refusal import ScaffoldError
from torchlint.scaffold.writing import free_code, write_rule

__all__ = ["ScaffoldError", "free_code", "write_pack", "write_rule"]
