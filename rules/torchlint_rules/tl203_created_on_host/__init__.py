"""TL203: the rule, its page and its parts."""
