"""The pages in `docs/`, generated from the rules: `python -m torchlint.docs` writes them."""
