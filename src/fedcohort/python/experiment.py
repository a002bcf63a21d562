"""``fc.Experiment``: an experiment written in Python, with all that the command does.

>>> import fedcohort as fc
>>> experiment = fc.Experiment(["fedavg", "fedprox"], partition="dirichlet(clients=10)", rounds=2, cohort=3)
>>> experiment.settings.seeds
(0,)
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedcohort.core.method import Method
from fedcohort.core.task import Task
from fedcohort.data import Dataset, Federation
from fedcohort.data.given import dataset_of
from fedcohort.data.partition import Partitioner
from fedcohort.data.sources.memory import keep
from fedcohort.models import Model
from fedcohort.python.auto import decided
from fedcohort.python.comparison import Comparison, complete, notes
from fedcohort.runs.comparison import Plan, extend, prepare, reopen
from fedcohort.runs.experiment import Experiment as Settings
from fedcohort.runs.experiment import as_asked
from fedcohort.runs.method_entries import write_method
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import own_code_in


class Experiment:
    """A comparison of methods, with the words of an experiment file.

    ``data`` is the name of a source, a table like ``[data]`` of a file, or data in memory: what
    :func:`fedcohort.load` gives or takes. ``partition`` is a text like ``"dirichlet(clients=30)"``, a table,
    or what :func:`fedcohort.partitioner` gives; without it, data that name their clients keep them.
    ``model`` is a name, a table, or a class or function of a module of yours. ``settings`` are all other
    words of a file: ``rounds``, ``cohort``, ``seeds``, ``local``, ``split``, ``evaluate``, ...
    """

    settings: Settings  # checked

    def __init__(
        self,
        method: str | Method | Mapping[str, Any] | Iterable[str | Method | Mapping[str, Any]],
        data: Any = "digits",
        *,
        partition: str | Mapping[str, Any] | Partitioner | None = None,
        model: Any = "mlp",
        name: str = "experiment",
        **settings: Any,
    ) -> None:
        methods = [method] if isinstance(method, str | Method | Mapping) else list(method)
        table = {key: _table(value) for key, value in settings.items()}
        table |= {"method": [write_method(each) if isinstance(each, Method) else each for each in methods]}
        about, held = _data(data)  # held until the settings have found it
        table |= {"data": about, "model": _model(model), "name": name}
        if partition is None and held is not None and held.owner is not None:
            partition = "natural"
        if partition is not None:
            table["partition"] = _partition(partition)
        self._hold(Settings.of(as_asked(table)))

    def _hold(self, settings: Settings) -> None:
        self.settings = settings
        self._held = settings.dataset if settings.data["source"] == "memory" else None  # kept from now on

    @classmethod
    def of(cls, table: Mapping[str, Any], name: str = "experiment") -> "Experiment":
        """From a table as a TOML file gives it."""
        experiment = cls.__new__(cls)
        experiment._hold(Settings.of(as_asked(table), name))
        return experiment

    @classmethod
    def read(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Experiment":
        """From a TOML file and overrides like ``local.lr=0.1``."""
        experiment = cls.__new__(cls)
        experiment._hold(Settings.read(path, overrides))
        return experiment

    def federation(self, seed: int) -> Federation:
        """The clients and their data under this seed."""
        return self.settings.federation(seed)

    def task(self, seed: int) -> Task:
        """What every method is given under this seed."""
        return self.settings.task(seed)

    def run(
        self, out: str | Path = "runs", *, resume: str | Path | None = None, progress: bool = True
    ) -> Comparison:
        """Every method with every seed, in a new directory ``out/<name>-NNN``, with its report.

        ``resume`` is such a directory of this experiment, or of a part of it: complete runs are read, stopped
        ones continued, and further seeds, methods, values or rounds added. ``progress`` is shown on standard
        error.
        """
        if resume is None:
            self._hold(decided(self.settings, Path(out), progress))
        plan = prepare(self.settings, Path(out)) if resume is None else self._reopened(Path(resume))
        if progress and resume is None:
            from fedcohort.cli.tables import tell

            tell(notes(self.settings))
        try:
            return complete(plan, progress)
        except KeyboardInterrupt as stopped:
            stopped.add_note(f"nothing is lost: the experiment's .run(resume={str(plan.home)!r}) goes on")
            raise

    def _reopened(self, directory: Path) -> Plan:
        table = self.settings.table()
        plan = reopen(directory, trusted=own_code_in(table))
        return plan if table == plan.experiment.table() else extend(plan, self.settings)


def _table(value: Any) -> Any:
    """``fc.Local(lr=0.1)`` and its like as the table that a file would hold."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return {key: item for key, item in dataclasses.asdict(value).items() if item is not None}


def _data(data: Any) -> tuple[dict[str, Any], Dataset | None]:
    """The table of a file, and what it cannot hold."""
    about = dict(data) if isinstance(data, Mapping) else {"source": data}
    source = about.pop("source", "digits")
    if isinstance(source, str):
        return {"source": source, **about}, None
    held = dataset_of(source)
    return {**about, **keep(held)}, held


def _partition(partition: str | Mapping[str, Any] | Partitioner) -> str | dict[str, Any]:
    if isinstance(partition, Partitioner):
        return {"name": partition.name, **_table(partition)}
    return partition if isinstance(partition, str) else dict(partition)


def _model(model: Any) -> Any:
    """As a file names it: run directories hold no code."""
    if isinstance(model, str | Mapping):
        return model
    if isinstance(model, Model):
        return {"name": model.name, **_table(model)}
    module, name = getattr(model, "__module__", ""), getattr(model, "__qualname__", "")
    if isinstance(model, nn.Module) or not name.isidentifier() or module == "__main__":
        raise UserError(
            "model: a run directory names its model, so put the class or function that makes yours into a "
            "file of its own and give it from there; or train it with fc.Task.of and fc.run"
        )
    return f"{module}:{name}"
