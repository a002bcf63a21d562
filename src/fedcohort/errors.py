"""The one exception a user's mistake may raise."""


class UserError(Exception):
    """A mistake the user can mend. Its text is one sentence that names the cure.

    The command line prints the sentence and exits with code 2; it never shows a traceback for one of these.
    """
