"""What to do next: the few actions that would help a comparison most."""

import shlex
from collections.abc import Iterator

import numpy as np

from fedcohort.report.conclusion import Conclusion
from fedcohort.report.curves import main_curve
from fedcohort.report.page import Led
from fedcohort.report.service import Service
from fedcohort.runs.outcomes.standings import recalls
from fedcohort.runs.stored import ASKED
from fedcohort.stats.intervals import LEVEL
from fedcohort.stats.paired import SEEDS
from fedcohort.util.user_code import resume_command

ACTIONS = 3
LAST = 0.2  # of the evaluated rounds: over which a curve must be flat at the end ...
RISING = 0.01  # ... or training was too short
MISSED = 0.5  # of the balanced accuracy: below, a class is recognised badly


def numbered(conclusion: Conclusion) -> list[Led]:
    """The most useful actions; the last is to take the model, where there is a good one."""
    taken = _export(conclusion)
    others = list(actions(conclusion))[: ACTIONS - len(taken)]
    return [action._replace(lead=f"{number}.") for number, action in enumerate([*others, *taken], 1)]


def actions(conclusion: Conclusion) -> Iterator[Led]:
    """All that would help here, what matters most first."""
    runs, deployed = conclusion.runs(conclusion.best), conclusion.evidence.runs[0].about.elsewhere
    waiting = [run for run in conclusion.evidence.runs if not run.complete]
    if waiting:
        yield Led(
            "",
            f"{len(waiting)} {'run has' if len(waiting) == 1 else 'runs have'} not ended: wait, or continue.",
            _again(conclusion),
        )
    if not conclusion.known:
        return
    cures = (finding.cure for finding in conclusion.best.findings)
    yield from (Led("", f"{cure[:1].upper()}{cure[1:]}.") for cure in cures)
    if conclusion.hopeless:
        return
    if not waiting and len(conclusion.evidence.seeds) < SEEDS and not deployed:
        yield Led(
            "", f"Run {SEEDS} seeds or more before you rely on a difference.", _seeds(conclusion, SEEDS)
        )
    if not conclusion.alone and not deployed:
        yield Led("", "Add local_only: only beside it one sees whether clients gain by sharing.")
    if (gained := _rising(conclusion)) >= RISING:
        more = _again(conclusion, f"--set rounds={2 * runs[0].asked.rounds}")
        yield Led(
            "",
            f"Train longer: {conclusion.best.method} still gained {100 * gained:.1f} points at its end.",
            more,
        )
    bad = [len(Service(conclusion.evidence, run).bad) for run in runs]
    if any(bad):
        most = f"{'up to ' * (min(bad) < max(bad))}{max(bad)} of {len(runs[0].clients)}"
        yield Led("", f"Look first at those served worse than luck explains, {most} clients (Who is served).")
        if not any(standing.mean.get("groups", 1) > 1 for standing in conclusion.usable):
            yield Led("", "Add models of clients' or groups' own: fedavg+finetune and clust_psi_pfl.")
    if missed := _missed(conclusion):
        yield Led("", missed)
    rivals = [title for title, test in conclusion.tests.items() if not test.p < LEVEL]
    if rivals and not waiting and not deployed:
        more = _seeds(conclusion, len(conclusion.evidence.seeds) + SEEDS)
        both = f"{conclusion.best.method} or {rivals[0]}"
        yield Led("", f"Run more seeds to tell which is better, {both}.", more)


def _export(conclusion: Conclusion) -> list[Led]:
    """How to take the model, where there is a good one."""
    runs = conclusion.runs(conclusion.best)
    if conclusion.hopeless or not conclusion.known or not all(run.complete for run in runs):
        return []
    folder = shlex.quote(str(_home(conclusion) or runs[0].directory))
    return [Led("", "Take the model into use:", f"fedcohort export {folder} --out model")]


def _home(conclusion: Conclusion) -> str | None:
    """The directory of the comparison, if there is one."""
    homes = {run.directory.parent for run in conclusion.evidence.runs}
    home = homes.pop()
    return str(home) if not homes and (home / ASKED).exists() else None


def _seeds(conclusion: Conclusion, count: int) -> str:
    seeds = conclusion.evidence.seeds
    wanted = [*seeds, *(seed for seed in range(count) if seed not in seeds)][:count]
    return _again(conclusion, f"--seeds {','.join(map(str, wanted))}")


def _again(conclusion: Conclusion, more: str = "") -> str:
    """The command that goes on, where there is one."""
    run = conclusion.evidence.runs[0]
    if _home(conclusion) is None or run.about.elsewhere:
        return ""
    return f"{resume_command(run.directory.parent, run.asked.table)} {more}".rstrip()


def _rising(conclusion: Conclusion) -> float:
    """What the best method gained at the end of its training."""
    gains = []
    for run in conclusion.runs(conclusion.best):
        _, values = run.curves.get(main_curve(conclusion.evidence), ((), np.zeros(0)))
        few = max(1, round(LAST * len(values)))
        if len(values) < 2 * few or run.rounds < run.asked.rounds:  # too few points, or stopped early
            return 0.0
        gains.append(values[-few:].mean() - values[-2 * few : -few].mean())
    return float(np.mean(gains))


def _missed(conclusion: Conclusion) -> str:
    """The class that is recognised worst, if that is bad."""
    usual = conclusion.best.mean.get("global.balanced_accuracy", np.nan)
    own = {name: value for name, value in recalls(conclusion.best).items() if not np.isnan(value)}
    worst = min(own, key=lambda name: own[name], default=None)
    if worst is None or not own[worst] < MISSED * usual:
        return ""
    return (
        f"Mind class '{worst}': {own[worst]:.0%} of its test samples are recognised. Compare the loss "
        f"with class weights ({conclusion.best.method}+balanced)."
    )
