"""Which run of a comparison a model is taken from, where the user names none: the best one, and why it is."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from statistics import fmean

from fedcohort.runs.standings import Outcome, rankings, with_conditions
from fedcohort.runs.stored import CONFIG, FinishedRun, read_result, runs_in, settings_file
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import resume_command

MEASURES = {
    "validation.accuracy": "accuracy on validation samples",
    "global.accuracy": "accuracy on test samples, which therefore flatters it",
}


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
        Outcome(run.settings.title, run.settings.seed, run.directory, read_result(run.directory) or {})
        for run in found
    ]
    outcomes = with_conditions(directory, outcomes)
    if len(rankings(outcomes)) > 1:
        raise UserError(
            f"{directory} compares several conditions, of which none is the best: name a run, like "
            f"{outcomes[0].directory}"
        )
    key = next((key for key in MEASURES if all(key in each.metrics for each in outcomes)), "global.accuracy")
    methods = dict.fromkeys(outcome.method for outcome in outcomes)
    own = {name: [each for each in outcomes if each.method == name] for name in methods}
    best = max(own.values(), key=lambda several: _mean(several, key))
    chosen = max(best, key=lambda one: _mean([one], key))
    words = f"{chosen.method}, the best of {len(own)} methods" if len(own) > 1 else chosen.method
    words += f", with seed {chosen.seed}, its best of {len(best)}" if len(best) > 1 else ""
    return FinishedRun.read(chosen.directory), f"{words}, by {MEASURES[key]}"


def _mean(outcomes: Sequence[Outcome], key: str) -> float:
    """Nobody knows how good: the worst."""
    mean = fmean(outcome.metrics.get(key, float("nan")) for outcome in outcomes)
    return float("-inf") if isnan(mean) else mean
