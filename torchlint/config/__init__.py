"""Settings: defaults, the nearest configuration file, and the command line over both."""

from torchlint.config.loading import load
from torchlint.config.settings import ConfigError, Settings, nearest, target_version
from torchlint.config.values import DEVICES, place, read_values

__all__ = [
    "DEVICES",
    "ConfigError",
    "Settings",
    "load",
    "nearest",
    "place",
    "read_values",
    "target_version",
]
