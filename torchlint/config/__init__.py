"""Settings: defaults, the nearest configuration file, and the command line over both."""

from torchlint.config.loading import load
from torchlint.config.settings import ConfigError, Settings, nearest, target_version

__all__ = ["ConfigError", "Settings", "load", "nearest", "target_version"]
