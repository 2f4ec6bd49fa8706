"""TL903: the rule, its page and its parts."""
