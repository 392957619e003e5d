"""From shell words to validated dataclasses, and what identifies a run."""
