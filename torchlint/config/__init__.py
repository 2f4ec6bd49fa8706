"""Settings: defaults, the nearest configuration file, and the command line over both."""

from torchlint.config.loading import load
from torchlint.config.settings import OF_THE_RUN, ConfigError, Settings, nearest, target_version
from torchlint.config.values import (
    COLORS,
    DEVICES,
    FORMATS,
    MOST_SECONDS,
    ORDERS,
    SEVERITIES,
    STEPS,
    place,
    read_values,
)

__all__ = [
    "COLORS",
    "DEVICES",
    "FORMATS",
    "MOST_SECONDS",
    "OF_THE_RUN",
    "ORDERS",
    "SEVERITIES",
    "STEPS",
    "ConfigError",
    "Settings",
    "load",
    "nearest",
    "place",
    "read_values",
    "target_version",
]
