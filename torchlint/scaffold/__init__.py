"""Writing a new rule and its fixture: `torchlint new`."""

from torchlint.scaffold.writing import ScaffoldError, free_code, write_rule

__all__ = ["ScaffoldError", "free_code", "write_rule"]
