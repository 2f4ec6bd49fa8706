"""TL509: the rule, its page and its parts."""
