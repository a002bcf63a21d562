"""Which run of a comparison a model is taken from, where the user names none: the best one, and why it is."""

from pathlib import Path

from fedcohort.core.evaluate import VALIDATION
from fedcohort.runs.outcomes.standings import Outcome, rank, rankings, spelled, with_conditions
from fedcohort.runs.stored import CONFIG, FinishedRun, read_result, runs_in, settings_file
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import resume_command


def best_run(directory: Path) -> tuple[FinishedRun, str]:
    """The run in ``directory``, or the best of a comparison; and how it was chosen, if it was."""
    settings_file(directory)
    if (directory / CONFIG).exists():
        return FinishedRun.read(directory), ""
    runs = runs_in([directory], [])
    found = [run for run in runs if run.complete and not run.about.pooled]
    if not found:
        resume = resume_command(directory, runs[0].settings.table if runs else {})
        raise UserError(f"{directory} has no finished run, so no model yet: continue it with '{resume}'")
    outcomes = [
        Outcome(
            run.settings.title,
            run.settings.seed,
            run.directory,
            read_result(run.directory) or {},
            ranked_by=run.settings.ranked_by,
        )
        for run in found
    ]
    outcomes = with_conditions(directory, outcomes)
    standings, *others = rankings(outcomes)
    if others:
        raise UserError(
            f"{directory} compares several conditions, of which none is the best: name a run, like "
            f"{outcomes[0].directory}"
        )
    best = [outcome for outcome in outcomes if outcome.method == standings[0].method]
    chosen = min(best, key=lambda one: rank([one])[0].rank)
    words = f"{chosen.method}, the best of {len(standings)} methods" if len(standings) > 1 else chosen.method
    words += f", with seed {chosen.seed}, its best of {len(best)}" if len(best) > 1 else ""
    measure = f"{spelled(chosen.ranked_by)} on test samples, which therefore flatters it"
    if chosen.ranked_by.startswith(VALIDATION):
        measure = f"{spelled(chosen.ranked_by)} on validation samples"
    return FinishedRun.read(chosen.directory), f"{words}, by {measure}"
