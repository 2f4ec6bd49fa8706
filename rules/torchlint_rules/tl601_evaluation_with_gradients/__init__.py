"""TL601: the rule, its page and its parts."""
