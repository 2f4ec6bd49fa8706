"""TL310: the rule, its page and its parts."""
