"""The error that a user can mend: one clear message, shown without a traceback."""


class UserError(Exception):
    """Something the user can put right; the message names what, where, what is allowed and the way out."""
