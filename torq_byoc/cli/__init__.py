"""The command line: one module a sub-command."""
