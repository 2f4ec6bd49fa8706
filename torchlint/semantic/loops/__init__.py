"""Loops: what they are for, how often they run, what guards them."""
