"""TensorBoard: event files in each run directory; ``tensorboard --logdir runs`` shows them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedcohort.runs.trackers import Log, RunInfo, Tracker, register

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@register
@dataclass(frozen=True)
class TensorBoard(Tracker):
    """Event files, in the folder ``tensorboard`` of each run directory."""

    library = "tensorboard"

    def start(self, info: RunInfo) -> Log:
        from torch.utils.tensorboard import SummaryWriter

        # What was written after the checkpoint that the run continues from comes again: hide the first.
        writer = SummaryWriter(str(info.directory / "tensorboard"), purge_step=info.begun + 1)
        writer.add_text("settings", "\n".join(f"- {key}: {value}" for key, value in info.settings.items()))
        return _Events(writer)


class _Events(Log):
    def __init__(self, writer: "SummaryWriter") -> None:
        self.writer = writer

    def write(self, number: int, values: dict[str, float]) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, number)

    def end(self, complete: bool) -> None:
        self.writer.close()
