"""The registry of rules: packs found by entry point, listed without importing their rules."""

from torchlint.registry.catalogue import Registry, load_registry
from torchlint.registry.heads import RegistryError, RuleHead
from torchlint.registry.packs import pack_metadata
from torchlint.registry.selection import Selection

__all__ = ["Registry", "RegistryError", "RuleHead", "Selection", "load_registry", "pack_metadata"]
