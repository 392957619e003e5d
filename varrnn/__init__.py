"""Dropout for recurrent networks as approximate Bayesian inference (Gal & Ghahramani, 2016)."""

from varrnn.errors import UserError
from varrnn.version import __version__

__all__ = ["UserError", "__version__"]
