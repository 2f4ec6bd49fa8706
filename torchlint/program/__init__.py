"""Which definitions of other modules a file is analyzed with: knows syntax and files, not torch."""
