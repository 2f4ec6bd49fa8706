"""Whole small training scripts, composed at random of what people write, the slow ways included."""

from trainings.script import COMPOSED, training_scripts

__all__ = ["COMPOSED", "training_scripts"]
