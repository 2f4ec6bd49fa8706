"""TL806: the rule, its page and its parts."""
