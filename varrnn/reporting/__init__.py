"""Tables and the style of figures, independent of runs and records."""
