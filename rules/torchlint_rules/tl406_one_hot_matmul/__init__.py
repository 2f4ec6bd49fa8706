"""TL406: the rule, its page and its parts."""
