"""TL204: the rule, its page and its parts."""
