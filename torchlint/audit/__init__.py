"""The checklist of all known techniques for one program."""

from torchlint.audit.auditing import Audit, audit, of_program
from torchlint.audit.row import Row, Status
from torchlint.audit.survey import ProgramFacts

__all__ = ["Audit", "ProgramFacts", "Row", "Status", "audit", "of_program"]
