"""The checklist of all known techniques for one script."""

from torchlint.audit.auditing import Audit, audit
from torchlint.audit.row import Row, Status

__all__ = ["Audit", "Row", "Status", "audit"]
