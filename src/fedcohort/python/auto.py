"""``method = "auto"`` where label counts do not tell which method is best: tuning chooses among a few."""

import math
from dataclasses import replace
from pathlib import Path

from fedcohort.runs.experiment import Experiment
from fedcohort.runs.sweep import Sweep
from fedcohort.util.budget import EACH
from fedcohort.util.cpu import one_thread


def decided(experiment: Experiment, out: Path, progress: bool) -> Experiment:
    """The experiment with one method in place of those among which ``auto`` left the choice to tuning: the
    best on rows held out of the training rows, with the settings that were best there."""
    if not experiment.undecided:
        return experiment
    from fedcohort.cli.progress import watcher_of
    from fedcohort.cli.tables import tell
    from fedcohort.report.tuned import write_tuned  # not before: plotly takes its time
    from fedcohort.runs.tuning.files import begin, write_best

    among = tuple(method for method in experiment.methods if method.title in experiment.undecided)
    own = {title: local for title, local in experiment.own_local.items() if title in experiment.undecided}
    asked = replace(experiment, methods=among, own_local=own, sweep=Sweep(), given={}, trackers=())
    tuning = begin(asked, out, "random", EACH, math.inf)
    if progress:
        tell(experiment.notes)  # why there is anything to tune
    watcher = watcher_of(tuning.runs, silent=not progress)
    try:
        with one_thread():
            trials = tuning.run(watcher)
    except KeyboardInterrupt as stopped:
        stopped.add_note(f"'fedcohort tune --resume {tuning.home}' goes on, and writes what is best to run")
        raise
    finally:
        watcher.stop()
    write_best(tuning, trials)
    write_tuned(tuning, trials)
    tuned = tuning.tuned(trials)
    best = max(tuning.best(trials), key=lambda trial: (trial.rounds, trial.score))
    method = tuned.methods[best.method]
    others = tuple(each for each in experiment.methods if each not in among)
    local = {title: given for title, given in experiment.own_local.items() if title not in own}
    local |= {title: given for title, given in tuned.own_local.items() if title == method.title}
    note = f"tuning chose {method}, {best.score:.1%} right on held-out rows: see {tuning.home}"
    return replace(experiment, methods=(*others, method), own_local=local, undecided=(), notes=(note,))
