"""The rewrite of a whole script for torchrun."""
