"""TL113: the rule, its page and its parts."""
