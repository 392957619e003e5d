"""The version of the package, defined here only."""

__version__ = "0.1.0"
SCHEMA = 1  # of summary.json and of the records made of it
