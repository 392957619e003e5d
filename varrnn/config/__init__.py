"""Compose and validate the config of a run, and compute the run's identity."""
