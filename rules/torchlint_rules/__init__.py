"""The rules that come with torchlint: each file beside this one is one, by being there.

The name of a file is the code and the name of its rule: `tl101_loader_without_workers.py`.
"""
