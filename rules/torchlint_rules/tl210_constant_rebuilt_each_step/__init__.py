"""TL210: the rule, its page and its parts."""
