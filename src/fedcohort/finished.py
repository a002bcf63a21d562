"""A complete run, read back from its directory: its settings, and the group that serves each client."""

import json
from dataclasses import dataclass
from pathlib import Path

from fedcohort import checkpoint
from fedcohort.comparison import reopen
from fedcohort.core.method import Method
from fedcohort.core.state import unpack
from fedcohort.diagnosis.distances import Array
from fedcohort.errors import UserError
from fedcohort.experiment import Experiment
from fedcohort.record import ENVIRONMENT, ROSTER, read_result, read_table


@dataclass(frozen=True)
class FinishedRun:
    """What a run directory tells without training anything."""

    directory: Path
    experiment: Experiment
    method: Method
    seed: int
    group: dict[str, int]  # by the client's name, in the order of clients

    @classmethod
    def read(cls, directory: Path) -> "FinishedRun":
        """The run in ``directory``, or the only one of a comparison."""
        plan = reopen(directory)
        if len(plan.jobs) > 1:
            first = plan.jobs[0].directory
            raise UserError(f"{directory} holds {len(plan.jobs)} runs: name one of them, like {first}")
        (job,) = plan.jobs
        if read_result(job.directory) is None:
            resume = f"fedcohort run --resume {directory}"
            raise UserError(f"{directory} is not finished: continue it with '{resume}'")
        rows = read_table(job.directory / "table.csv")
        group = {row.client: int(row.group) for row in rows if row.client and row.scope == "personal"}
        return cls(job.directory, plan.experiment, job.method, job.seed, group)

    @property
    def models(self) -> int:
        """How many groups have a model; some may serve nobody."""
        return len(unpack(checkpoint.load(self.directory)[0], lambda _: {}).groups)

    def counts(self) -> tuple[Array, list[str]]:
        """Label counts of the clients as the server saw them; the classes.

        Of a deployment they are what clients told before training. The directory of a simulation holds none:
        they are dealt again from the run's data. Where privacy withheld them, nobody can look them up later.
        """
        if (self.directory / ROSTER).exists():
            return self._told()
        federation = self.experiment.federation(self.seed)
        path = self.directory / ENVIRONMENT
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))["fingerprint"]
        except (OSError, ValueError, KeyError):
            raise UserError(
                f"{path} is missing or damaged, and says which data the run had: restore it"
            ) from None
        if kept != federation.fingerprint():
            raise UserError(f"{self.directory}: the data changed since the run was started: restore them")
        revealed = self.method.privacy(self.experiment.privacy).reveal(federation.counts, self.seed)
        if revealed is None:
            raise UserError(
                "this run withheld its clients' label counts (privacy.counts): give --losses instead"
            )
        return revealed.numpy(), list(federation.classes)

    def _told(self) -> tuple[Array, list[str]]:
        from safetensors import safe_open

        with safe_open(self.directory / ROSTER, framework="np") as roster:
            if "counts" not in roster.keys():  # noqa: SIM118  # not a dict
                raise UserError("no label counts were told in this run: give --losses instead")
            return roster.get_tensor("counts"), json.loads(roster.metadata()["facts"])["classes"]
