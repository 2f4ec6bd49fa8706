"""The rules that come with torchlint: one module per rule, with its page beside it.

The file name is the code and the name of the rule: `tl101_loader_without_workers.py`.
"""
