"""Tables and the style of figures; knows no run."""
