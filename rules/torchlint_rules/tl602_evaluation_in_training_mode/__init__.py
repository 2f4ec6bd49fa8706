"""TL602: the rule, its page and its parts."""
