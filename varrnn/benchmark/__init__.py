"""Training speed in words per second: this library compared with the alternatives."""
