"""TL510: the rule, its page and its parts."""
