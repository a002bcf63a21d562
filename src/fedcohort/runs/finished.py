"""A complete run, read back from its directory: its settings, and the group that serves each client."""

from dataclasses import dataclass
from pathlib import Path

from fedcohort.core.roles import Grouping
from fedcohort.runs.stored import ASKED, CONFIG, TABLE, RunDir, is_home, planned, runs_of
from fedcohort.stats.label_distances import Array
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError
from fedcohort.util.files import damaged
from fedcohort.util.user_code import resume_command


@dataclass(frozen=True)
class FinishedRun:
    """What a run directory tells without training anything."""

    run: RunDir
    group: dict[str, int]  # by the client's name, in the order of clients

    @classmethod
    def read(cls, directory: Path) -> "FinishedRun":
        """The run in ``directory``, or the only one of a comparison."""
        if not is_home(directory):
            raise UserError(
                f"{directory} is not the directory of a run: it holds neither {ASKED} nor {CONFIG}"
            )
        found = runs_of(directory)
        several = max(len(found), len(planned(directory)) if (directory / ASKED).exists() else 1)
        if several > 1:
            one = f", like {found[0]}" if found else ""
            raise UserError(f"{directory} holds {several} runs: name one of them{one}")
        run = RunDir.read(found[0]) if found else None
        if run is None or not run.complete:
            resume = resume_command(directory, run.asked.table if run else {})
            raise UserError(f"{directory} is not finished: continue it with '{resume}'")
        group = {row.client: int(row.group) for row in run.rows() if row.client and row.scope == "personal"}
        return cls(run, group)

    @property
    def directory(self) -> Path:
        return self.run.directory

    @property
    def grouping(self) -> Grouping | None:
        """None where it does not come with fedcohort, and so is not executed."""
        return self.run.grouping

    @property
    def models(self) -> int:
        """How many groups have a model; some may serve nobody."""
        names = set(checkpoint.names(self.directory))
        return next(n for n in range(len(names) + 1) if f"group/{n}/weights/params" not in names)

    def counts(self) -> tuple[Array, list[str]]:
        """Label counts of the clients as the server saw them; the classes. What privacy withheld, nobody can
        look up later."""
        known = self.run.revealed()
        if known.counts is None:
            raise UserError(
                "this run withheld its clients' label counts (privacy.counts): give --losses instead"
            )
        if known.clients != tuple(self.group):
            raise damaged(self.directory / TABLE, "its clients are not those who told their label counts")
        return known.counts.numpy(), list(known.classes)
