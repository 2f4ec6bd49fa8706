"""TL303: the rule, its page and its parts."""
