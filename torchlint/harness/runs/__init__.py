"""How runs of the script are started and ended, one after the other."""
