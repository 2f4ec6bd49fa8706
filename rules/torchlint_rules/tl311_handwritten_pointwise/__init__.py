"""TL311: the rule, its page and its parts."""
