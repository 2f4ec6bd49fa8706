"""TL207: the rule, its page and its parts."""
