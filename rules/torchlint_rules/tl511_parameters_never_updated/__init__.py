"""TL511: the rule, its page and its parts."""
