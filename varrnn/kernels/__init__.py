"""Whole-sequence forward and backward passes: the fast twins of cells.py, a file per cell."""
