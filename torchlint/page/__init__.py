"""Pages of rules: Markdown with a header, read without importing the rule."""
