"""The rules there are: packs found by entry point, listed cheaply, imported when wanted."""

from torchlint.registry.catalogue import Registry, load_registry
from torchlint.registry.heads import RegistryError, RuleHead
from torchlint.registry.packs import pack_metadata
from torchlint.registry.selection import Selection

__all__ = ["Registry", "RegistryError", "RuleHead", "Selection", "load_registry", "pack_metadata"]
