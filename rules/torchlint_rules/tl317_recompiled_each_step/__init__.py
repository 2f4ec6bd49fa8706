"""TL317: the rule, its page and its parts."""
