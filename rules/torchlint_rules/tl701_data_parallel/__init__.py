"""TL701: the rule, its page and its parts."""
