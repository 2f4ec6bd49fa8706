"""TL405: the rule, its page and its parts."""
