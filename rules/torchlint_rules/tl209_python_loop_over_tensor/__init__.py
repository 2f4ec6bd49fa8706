"""TL209: the rule, its page and its parts."""
