"""MLflow: a run in a tracking server, or in a database file beside the runs."""

import logging
import os
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedcohort.runs.trackers import Log, RunInfo, Tracker, register

if TYPE_CHECKING:
    from mlflow import MlflowClient

IDENTITY = "fedcohort.run"  # the tag by which a continued run is found again
_setting_up = threading.Lock()  # several runs start at a time, and the first makes the database


@register
@dataclass(frozen=True)
class MLflow(Tracker):
    """A run for each run, with its settings as parameters."""

    uri: str = ""  # of the tracking server; else $MLFLOW_TRACKING_URI, else mlflow.db beside the runs
    experiment: str = ""  # the experiment's own name, unless given

    library = "mlflow"

    def start(self, info: RunInfo) -> Log:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # else it reports to its makers
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # else one that is away costs minutes
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        with _setting_up:
            client = MlflowClient(self.uri or os.environ.get("MLFLOW_TRACKING_URI") or _beside(info))
            name = self.experiment or info.experiment
            known = client.get_experiment_by_name(name)
            experiment = known.experiment_id if known else client.create_experiment(name)
        earlier = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{info.identity}'")
        if earlier:
            run = earlier[0].info.run_id
            client.update_run(run, status="RUNNING")
            return _Run(client, run, _last_step(client, run))
        tags = {IDENTITY: info.identity}
        run = client.create_run(experiment, run_name=info.name, tags=tags).info.run_id
        for key, value in info.settings.items():
            client.log_param(run, _name(key), str(value)[:6000])
        return _Run(client, run, 0)


class _Run(Log):
    def __init__(self, client: "MlflowClient", run: str, written: int) -> None:
        self.client, self.run, self.written = client, run, written

    def write(self, number: int, values: dict[str, float]) -> None:
        """Rounds that were written before the run was stopped are not written twice."""
        if number <= self.written:
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_name(key), value, now, number) for key, value in values.items()]
        self.client.log_batch(self.run, metrics=metrics)

    def end(self, complete: bool) -> None:
        self.client.set_terminated(self.run, "FINISHED" if complete else "KILLED")


def _beside(info: RunInfo) -> str:
    return f"sqlite:///{info.directory.resolve().parents[1] / 'mlflow.db'}"


def _last_step(client: "MlflowClient", run: str) -> int:
    return max((metric.step for metric in client.get_metric_history(run, "round/cohort")), default=0)


def _name(key: str) -> str:
    """Without characters that MLflow refuses: ``global/accuracy[a]`` is ``global/accuracy:a``."""
    return re.sub(r"[^\w\-./ :]", "_", re.sub(r"\[(.*)\]$", r":\1", key))
