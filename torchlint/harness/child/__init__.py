"""Inside the process that runs the script: all that imports torch, and what it stands on."""
