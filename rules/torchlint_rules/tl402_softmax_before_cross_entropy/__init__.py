"""TL402: the rule, its page and its parts."""
