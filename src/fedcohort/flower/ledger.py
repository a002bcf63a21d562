"""What a client has told of its data under noise: each table once, and what all of them spent.

The noise comes from OpenDP, which draws it from the operating system's cryptographic source; nothing that a
server sends has a part in it. The noisy answer is stored and given again whenever the same is asked: to ask
twice, under another name, in another run or from another server teaches nothing new. Another question spends
epsilon again, until the client's budget is spent; whether one is refused never depends on the data.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcohort.core.noise import SENSITIVITY
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held

FILE = "ledger.json"
CELLS = 10**6  # of all tables together


class OverspentError(Exception):
    """To answer would take more than the client's budget, or than its ledger holds."""


class Ledger:
    """The ledger in one folder, for all runs that its client takes part in."""

    def __init__(self, folder: Path, epsilon: float, budget: float) -> None:
        self.path, self.epsilon, self.budget = folder / FILE, epsilon, budget

    def tell(self, what: str, cells: Sequence[str], values: Sequence[int] | Sequence[float]) -> list[float]:
        """The noisy value of each cell of the table that answers a question; drawn now if it never was, read
        otherwise, also if the data have changed: whether they have would be an answer too.

        A cell that is new in a known table gets the same noise as all others: no sample is in two cells.
        """
        measure = _measurement(self.epsilon, whole=all(isinstance(value, int) for value in values))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with held(self.path.parent):
            entries = self.entries()
            entry = next((one for one in entries if one["what"] == what), None)
            if entry is None:
                self._refuse_overspending(what, entries)
                now = datetime.now(UTC).isoformat(timespec="seconds")
                entry = {"what": what, "epsilon": self.epsilon, "when": now, "told": {}}
                entries.append(entry)
            fresh = [cell not in entry["told"] for cell in cells]
            _refuse_endless(what, entries, sum(fresh))
            if any(fresh):
                noisy = measure([value for value, new in zip(values, fresh, strict=True) if new])
                names = (cell for cell, new in zip(cells, fresh, strict=True) if new)
                entry["told"] |= dict(zip(names, noisy, strict=True))
                self._write(entries)
        return [entry["told"][cell] for cell in cells]

    def entries(self) -> list[dict[str, Any]]:
        """All tables told so far."""
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            if not isinstance(entries, list) or not all(map(_is_table, entries)):  # {} is not an empty one
                raise ValueError
            return entries
        except FileNotFoundError:
            return []
        except (ValueError, TypeError):
            raise UserError(
                f"{self.path} is damaged, and says what was told of this client's data: restore it"
            ) from None

    @property
    def spent(self) -> float:
        return sum(entry["epsilon"] for entry in self.entries())

    def _refuse_overspending(self, what: str, entries: Sequence[dict[str, Any]]) -> None:
        spent = sum(entry["epsilon"] for entry in entries)
        if spent + self.epsilon > self.budget * (1 + 1e-9):
            raise OverspentError(
                f"{what}: epsilon {self.epsilon:g} more, after {spent:g}, would exceed the budget of "
                f"{self.budget:g}; --budget sets it"
            )

    def _write(self, entries: Sequence[dict[str, Any]]) -> None:
        """Before anything is told: what is not in the ledger was not said."""
        write_atomically(self.path, json.dumps(entries, indent=1).encode(), private=True)


def _refuse_endless(what: str, entries: Sequence[dict[str, Any]], more: int) -> None:
    """A server names the cells, and could name other ones in every run."""
    if sum(len(entry["told"]) for entry in entries) + more > CELLS:
        raise OverspentError(f"{what}: {more:,} cells more, and the ledger would hold more than {CELLS:,}")


def _is_table(entry: Any) -> bool:
    """Whether an entry says what was asked, what that spent and what was told."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("what"), str)
        and isinstance(entry.get("epsilon"), int | float)
        and entry["epsilon"] > 0
        and isinstance(entry.get("told"), dict)
    )


def _measurement(epsilon: float, whole: bool) -> Any:
    """OpenDP's Laplace mechanism for a table of whole numbers, or of others."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise UserError("noised answers need OpenDP: pip install 'fedcohort[flower]'") from None
    dp.enable_features("contrib")
    number = dp.atom_domain(T=int) if whole else dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(number), dp.l1_distance(T=int if whole else float)
    return dp.m.make_laplace(*space, scale=SENSITIVITY / epsilon)
