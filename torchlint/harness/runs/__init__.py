"""Starting and ending runs of the script, one after the other."""
