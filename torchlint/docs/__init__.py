"""Lists of rules in `docs/` and the sources of the site, generated from the rules' pages."""
