"""Names and scopes: what a name is bound to."""
