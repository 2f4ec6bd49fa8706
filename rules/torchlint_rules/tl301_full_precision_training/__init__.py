"""TL301: the rule, its page and its parts."""
