"""One run: fit, checkpoint, evaluate, summary."""
