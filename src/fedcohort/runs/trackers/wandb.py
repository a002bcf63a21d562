"""Weights & Biases: files in each run directory, sent nowhere unless ``mode`` is "online"."""

import os
from dataclasses import dataclass
from typing import Any, Literal

from fedcohort.runs.trackers import Log, RunInfo, Tracker, register


@register
@dataclass(frozen=True)
class Wandb(Tracker):
    """A run for each run; ``wandb sync RUN/wandb/offline-run-*`` sends an offline one later."""

    project: str = "fedcohort"  # where the runs appear
    mode: Literal["offline", "online"] = "offline"  # offline: nothing leaves this machine

    library = "wandb"

    def start(self, info: RunInfo) -> Log:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,  # host, user, command
            x_disable_stats=True,  # load of this machine
        )
        run = wandb.init(
            project=self.project,
            group=info.experiment,
            name=info.name,
            id=info.identity,
            resume="allow" if self.mode == "online" else None,
            dir=info.directory,
            config=info.settings,
            mode=self.mode,
            reinit="create_new",  # several runs go on at a time
            settings=settings,
        )
        return _Run(run)


class _Run(Log):
    def __init__(self, run: Any) -> None:
        self.run = run

    def write(self, number: int, values: dict[str, float]) -> None:
        if number >= self.run.step:  # else it was written before the run was stopped
            self.run.log(values, step=number)

    def end(self, complete: bool) -> None:
        self.run.finish(exit_code=0 if complete else 1)
