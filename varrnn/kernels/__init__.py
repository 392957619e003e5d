"""Fast whole-sequence twins of varrnn.cells."""
