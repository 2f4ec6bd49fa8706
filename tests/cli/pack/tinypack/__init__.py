"""Rules that look for words: small enough to see what the command line does with them."""
