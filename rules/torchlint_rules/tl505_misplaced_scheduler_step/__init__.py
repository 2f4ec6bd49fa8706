"""TL505: the rule, its page and its parts."""
