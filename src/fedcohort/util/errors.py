"""The one exception a user's mistake may raise."""

LONGEST = 1000  # characters of a sentence; what it quotes may be an attacker's


class UserError(Exception):
    """A mistake the user can mend. Its text is one sentence that names the cure.

    The command line prints the sentence and exits with code 2; it never shows a traceback for one of these.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_on_one_line(text))


def _on_one_line(text: str) -> str:
    """Without line breaks and control characters; of a very long text, the beginning and the cure."""
    line = "".join(each if each.isprintable() else " " if each.isspace() else "�" for each in text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
