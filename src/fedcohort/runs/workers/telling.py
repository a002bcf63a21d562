"""A run in one process that is watched in another: what the one tells, and the other passes on."""

import pickle
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedcohort.core.evaluate import Row
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.runs.run import Callback
from fedcohort.util.user_code import in_words

if TYPE_CHECKING:
    from fedcohort.runs.comparison import Watcher
    from fedcohort.runs.outcomes.standings import Outcome


class Listener:
    """Where runs are watched: tells the watcher what one process tells."""

    def __init__(self, watcher: "Watcher") -> None:
        self.watcher = watcher

    def begin(self, *about: Any) -> None:
        self.progress: Callback = self.watcher.begin(*about)

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> None:
        self.progress.after_round(state, report, rows)

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        self.progress.conclude(state, rows)

    def close(self, state: State) -> None:
        self.progress.close(state)

    def end(self, outcome: "Outcome") -> None:
        self.watcher.end(outcome)

    def warned(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


class Teller(Callback):
    """Where they are carried out: a watcher, and the callback of its run, that tells somebody elsewhere."""

    ended = False  # it was told to end

    def tell(self, kind: str, *about: Any) -> None:
        """``kind`` is a method of Listener, or what else is agreed upon."""
        raise NotImplementedError

    def listen(self) -> None:
        """Finds out what there is to know between two rounds, such as that it is to end."""

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        self.tell("begin", method, seed, rounds)
        return self

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        self.tell("after_round", _light(state), report, list(rows))
        self.listen()
        return self.ended

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        self.tell("conclude", _light(state), list(rows))

    def close(self, state: State) -> None:
        self.tell("close", _light(state))

    def expect(self, seconds: float) -> None:
        pass  # nobody here knows of the others

    def end(self, outcome: "Outcome") -> None:
        self.tell("end", outcome)

    def fail(self, method: str, seed: int, error: Exception) -> None:
        pass  # whoever carries it out there tells why


def _light(state: State) -> State:
    """The state without its models and memories, which are large and of no use to a watcher."""
    return replace(state, groups=(), grouping={}, clients={}, encoders=(), best=None)


def portable(error: Exception) -> Exception:
    """The error with its traceback in words, to be raised elsewhere; some classes cannot be pickled."""
    words = "".join(traceback.format_exception(error))
    try:
        error = pickle.loads(pickle.dumps(error))  # noqa: S301  # made on the same line
    except Exception:  # somebody else's class: anything may happen
        error = RuntimeError(in_words(error))
    error.add_note(words)
    return error
