"""Uncertainty of trained models, word by word and as figures."""
