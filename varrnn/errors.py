"""The error that a user can fix: one clear message, shown without a traceback."""


class UserError(Exception):
    """A mistake that the user can fix; the message says what is wrong, where, what is allowed and what to do."""
