"""Let `python -m torchlint` do what `torchlint` does."""

from torchlint.cli import main

main()
