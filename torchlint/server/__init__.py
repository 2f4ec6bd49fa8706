"""The language server: findings, fixes and rule pages in an editor, over standard streams."""

from torchlint.server.handlers import serve

__all__ = ["serve"]
