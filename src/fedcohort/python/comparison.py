"""A comparison from its plan to its report: what ``fedcohort run`` and ``fc.Experiment.run`` share."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedcohort.runs.comparison import FailedRunsError, Plan, carry_out
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.results import write_summary
from fedcohort.runs.outcomes.standings import Outcome, Standing, rankings, with_conditions
from fedcohort.util.cpu import one_thread
from fedcohort.util.user_code import resume_command
from fedcohort.util.words import counted


class Comparison(NamedTuple):
    """What became of an experiment."""

    directory: Path  # one run in each folder below
    outcomes: list[Outcome]  # of every method and seed: ``metrics``, ``directory``
    report: Path | None  # the page; None if it was there already

    @property
    def leaderboard(self) -> list[Standing]:
        """Each method's mean over seeds, the best first; one condition after the other, where there are
        several."""
        return [standing for standings in rankings(self.outcomes) for standing in standings]


def complete(plan: Plan, progress: bool) -> Comparison:
    """Every run to its end, with ``progress`` on standard error, and a report if there is anything new."""
    from fedcohort.cli.progress import watcher_of
    from fedcohort.report import REPORT, write_report  # not before: plotly takes its time

    news = plan.open  # a comparison that is complete already is shown, and nothing is written
    failed: FailedRunsError | None = None
    shown = watcher_of(news, silent=not progress)
    try:
        with one_thread():  # results must not depend on how many cores there are
            outcomes = carry_out(plan, shown)
    except FailedRunsError as error:  # what the others came to is shown before that is told
        failed, outcomes = error, error.outcomes
    finally:
        shown.stop()
    outcomes = with_conditions(plan.home, outcomes)
    if news and outcomes:
        write_summary(plan.home, outcomes)
    page = write_report([plan.home], plan.home / REPORT, private=True) if news and outcomes else None
    if failed is not None:
        again = resume_command(plan.home, plan.experiment.table())
        others = f"{counted(len(outcomes), 'other run')} complete: {page}; " if page else ""
        raise FailedRunsError(f"{failed} ({others}'{again}' tries again)", outcomes) from failed
    return Comparison(plan.home, outcomes, page)


def notes(experiment: Experiment) -> Iterator[str]:
    """What was decided for the user, and how the data were read."""
    read = experiment.federation(experiment.seeds[0]).provenance["data"].get("read")
    yield from filter(None, (*experiment.notes, read))
