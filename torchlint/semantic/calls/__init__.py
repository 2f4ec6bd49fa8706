"""Calls and functions: who calls what, with which arguments."""
