"""The command line: arguments in, one-line errors out."""
