"""The one exception a user's mistake may raise."""

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 1000  # characters of a sentence; what it quotes may be an attacker's


class UserError(Exception):
    """A mistake the user can mend. Its text is one sentence that names the cure.

    The command line prints the sentence and exits with code 2; it never shows a traceback for one of these.
    """

    parts: tuple[str, ...] = ()  # several of them, if it tells of several

    def __init__(self, text: str) -> None:
        super().__init__(_on_one_line(text))


class Mistakes:
    """Several mistakes, told together: who has to mend them wants to know of all at once."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What is wrong in this block is told later."""
        try:
            yield
        except UserError as mistake:
            self.said += [text for text in mistake.parts or (str(mistake),) if text not in self.said]

    def tell(self) -> None:
        """All of them as one, if there are any."""
        if not self.said:
            return
        text = "; ".join(f"({number}) {text}" for number, text in enumerate(self.said, start=1))
        together = UserError(self.said[0] if len(self.said) == 1 else f"{len(self.said)} problems: {text}")
        together.parts = tuple(self.said)
        raise together


def _on_one_line(text: str) -> str:
    """Without line breaks and control characters; of a very long text, the beginning and the cure."""
    line = "".join(each if each.isprintable() else " " if each.isspace() else "�" for each in text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
