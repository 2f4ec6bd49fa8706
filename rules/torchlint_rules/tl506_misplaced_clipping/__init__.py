"""TL506: the rule, its page and its parts."""
