"""TL504: the rule, its page and its parts."""
