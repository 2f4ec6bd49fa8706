"""TL108: the rule, its page and its parts."""
