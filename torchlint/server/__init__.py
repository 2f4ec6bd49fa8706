"""The language server: findings, fixes and pages in an editor, over standard input and output."""

from torchlint.server.program import serve

__all__ = ["serve"]
