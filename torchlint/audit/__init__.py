"""The checklist of every known technique for one script."""

from torchlint.audit.auditing import Audit, audit
from torchlint.audit.row import Row, State

__all__ = ["Audit", "Row", "State", "audit"]
