"""TL101: the rule, its page and its parts."""
