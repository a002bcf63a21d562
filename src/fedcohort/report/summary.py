"""The first screen: who should use what, how sure that is, and what to do next, over all seeds."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcohort.report.curves import main_curve
from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Card, Led
from fedcohort.report.service import Service
from fedcohort.report.standings import against_leader, copies_of, standings_of, sureness
from fedcohort.report.style import OTHERS, figure, plain_each
from fedcohort.runs.over_rounds import ACCURACY
from fedcohort.runs.standings import (
    UNKNOWN,
    Standing,
    baseline,
    cell,
    nature,
    recalls,
    remarks,
    spelled,
    verdict,
)
from fedcohort.runs.stored import ASKED
from fedcohort.stats.intervals import LEVEL, Interval, of_mean, of_share
from fedcohort.stats.paired import SEEDS, Paired
from fedcohort.util.user_code import resume_command

ACTIONS = 3
LAST = 0.2  # of the evaluated rounds: over which a curve must be flat at the end ...
RISING = 0.01  # ... or training was too short
MISSED = 0.5  # of the balanced accuracy: below, a class is recognised badly


def summary_cards(evidence: Evidence) -> list[Card]:
    """One verdict, the actions that help most, and all methods in one picture."""
    summary = Summary(evidence)
    return [
        Card("In short", sentences=[*summary.sentences, *summary.numbered]),
        *([_picture(summary)] if summary.known else []),
    ]


@dataclass(frozen=True, eq=False)
class Summary:
    """What a comparison comes to."""

    evidence: Evidence

    @cached_property
    def standings(self) -> list[Standing]:
        """Of all methods, the best first; who went exactly like another is left out."""
        ranked = standings_of(self.evidence)
        copies = copies_of(self.evidence, ranked)
        return [standing for standing in ranked if standing.method not in copies]

    @property
    def best(self) -> Standing:
        return self.standings[0]

    @property
    def usable(self) -> list[Standing]:
        """Those that a client could use."""
        return [each for each in self.standings if each.method not in self.evidence.pooled]

    @cached_property
    def tests(self) -> dict[str, Paired]:
        """The best against every other."""
        return against_leader(self.evidence, self.usable)

    @property
    def known(self) -> bool:
        return not np.isinf(self.best.rank)

    @property
    def hopeless(self) -> bool:
        return any(finding.hopeless for finding in self.best.findings)

    def runs(self, standing: Standing) -> list[Run]:
        return [run for run in self.evidence.runs if run.title == standing.method]

    def interval(self, standing: Standing) -> Interval | None:
        """Of the mean over seeds; where these are too few, of as many test samples."""
        key, runs = standing.metric, self.runs(standing)
        values = [run.metrics.get(key, np.nan) for run in runs]
        if not np.isfinite(values).all():
            return None
        if len(values) >= SEEDS:
            low, high = of_mean(values)
            return Interval(max(low, 0.0), min(high, 1.0)) if _is_share(key) else Interval(low, high)
        samples = sum(run.metrics.get("global.samples", 0) for run in runs)
        return of_share(standing.mean[key] * samples, samples) if key == ACCURACY and samples else None

    def value(self, standing: Standing) -> str:
        """The number that ranks, with its interval."""
        key, kind = standing.metric, nature(standing.metric)[1]
        shown, between = cell(standing.mean.get(key, np.nan), 0, kind, False), self.interval(standing)
        if between is None:
            return shown
        return f"{shown} (95 %: {' to '.join(cell(end, 0, kind, False) for end in between)})"

    @property
    def sentences(self) -> Iterator[str | Led]:
        if not self.known:
            yield UNKNOWN
            return
        if self.best.findings:
            yield verdict(self.standings)
        if not self.hopeless:
            yield self._advised()
            yield self._beside()
        yield from remarks([self.best])

    def _advised(self) -> Led:
        """Who should use what, and how sure that is."""
        best, others = self.best, self.usable[1:]
        metric, value = spelled(best.metric), self.value(best)
        sure = sureness(self.tests, len(others)) if others else "."
        if self._is_alone(best):
            shared = next((other for other in others if not self._is_alone(other)), None)
            beside = f", against {self.value(shared)} with {shared.method}" if shared else ""
            return Led(f"Let every client train alone ({best.method}):", f"{metric} {value}{beside}{sure}")
        return Led(f"Use {best.method},", f"{self._whom(best)}: {metric} {value}{sure}")

    def _whom(self, standing: Standing) -> str:
        """Which model serves whom."""
        groups, clients = standing.mean.get("groups", 1), len(self.runs(standing)[0].clients)
        if self.runs(standing)[0].about.personal or groups >= clients > 1:
            return "which ends with a model for each client"
        if groups > 1:
            return f"which ends with a model for each of {cell(groups, 0, 'count', False)} groups of clients"
        return "one model for everybody"

    def _is_alone(self, standing: Standing) -> bool:
        return all(run.about.silent for run in self.runs(standing))

    def _beside(self) -> str:
        """Against the constant answer, training alone, and all data in one place."""
        key, found = self.best.metric, []
        constant = baseline(self.standings).get(key)
        if constant is not None:
            found.append(f"always giving the most common answer gets {constant:.1%}")
        for names, words in ((self._alone, "every client alone"), (self._pooled, "all data in one place")):
            own = names[0] if names else None
            if own is not self.best:
                found.append(f"{words} {f'gets {self.value(own)}' if own else 'was not run'}")
        return f"For comparison, {', '.join(found)}."

    @property
    def _alone(self) -> list[Standing]:
        return [standing for standing in self.standings if self._is_alone(standing)]

    @property
    def _pooled(self) -> list[Standing]:
        return [standing for standing in self.standings if standing.method in self.evidence.pooled]

    @property
    def numbered(self) -> list[Led]:
        """The most useful actions; the last is to take the model, where there is a good one."""
        taken = self._export()
        others = list(self.actions())[: ACTIONS - len(taken)]
        return [action._replace(lead=f"{number}.") for number, action in enumerate([*others, *taken], 1)]

    def actions(self) -> Iterator[Led]:
        """All that would help here, what matters most first."""
        runs, deployed = self.runs(self.best), self.evidence.runs[0].about.elsewhere
        waiting = [run for run in self.evidence.runs if not run.complete]
        if waiting:
            yield Led("", f"{len(waiting)} runs have not ended: wait, or continue them.", self._again())
        if not self.known:
            return
        yield from (Led("", f"{found.cure[:1].upper()}{found.cure[1:]}.") for found in self.best.findings)
        if self.hopeless:
            return
        if not waiting and len(self.evidence.seeds) < SEEDS and not deployed:
            yield Led("", f"Run {SEEDS} seeds or more before you rely on a difference.", self._seeds(SEEDS))
        if not self._alone and not deployed:
            yield Led("", "Add local_only: only beside it one sees whether clients gain by sharing.")
        if (gained := self._rising()) >= RISING:
            more = self._again(f"--set rounds={2 * runs[0].asked.rounds}")
            yield Led(
                "",
                f"Train longer: {self.best.method} still gained {100 * gained:.1f} points at its end.",
                more,
            )
        bad = [len(Service(self.evidence, run).bad) for run in runs]
        if any(bad):
            most = f"{'up to ' * (min(bad) < max(bad))}{max(bad)} of {len(runs[0].clients)}"
            yield Led(
                "",
                f"Look first at those served worse than luck explains, {most} clients (Who is served).",
            )
            if not any(standing.mean.get("groups", 1) > 1 for standing in self.usable):
                yield Led("", "Add models of clients' or groups' own: fedavg+finetune and clust_psi_pfl.")
        if missed := self._missed():
            yield Led("", missed)
        rivals = [title for title, test in self.tests.items() if not test.p < LEVEL]
        if rivals and not waiting and not deployed:
            more = self._seeds(len(self.evidence.seeds) + SEEDS)
            yield Led("", f"Run more seeds to tell whether {self.best.method} beats {rivals[0]}.", more)

    def _export(self) -> list[Led]:
        """How to take the model, where there is a good one."""
        runs = self.runs(self.best)
        if self.hopeless or not self.known or not all(run.complete for run in runs):
            return []
        folder = shlex.quote(str(self._home or runs[0].directory))
        return [Led("", "Take the model into use:", f"fedcohort export {folder} --out model")]

    @property
    def _home(self) -> str | None:
        """The directory of the comparison, if there is one."""
        homes = {run.directory.parent for run in self.evidence.runs}
        home = homes.pop()
        return str(home) if not homes and (home / ASKED).exists() else None

    def _seeds(self, count: int) -> str:
        seeds = self.evidence.seeds
        wanted = [*seeds, *(seed for seed in range(count) if seed not in seeds)][:count]
        return self._again(f"--seeds {','.join(map(str, wanted))}")

    def _again(self, more: str = "") -> str:
        """The command that goes on, where there is one."""
        run = self.evidence.runs[0]
        if self._home is None or run.about.elsewhere:
            return ""
        return f"{resume_command(run.directory.parent, run.asked.table)} {more}".rstrip()

    def _rising(self) -> float:
        """What the best method gained at the end of its training."""
        gains = []
        for run in self.runs(self.best):
            _, values = run.curves.get(main_curve(self.evidence), ((), np.zeros(0)))
            few = max(1, round(LAST * len(values)))
            if len(values) < 2 * few or run.rounds < run.asked.rounds:  # too few points, or stopped early
                return 0.0
            gains.append(values[-few:].mean() - values[-2 * few : -few].mean())
        return float(np.mean(gains))

    def _missed(self) -> str:
        """The class that is recognised worst, if that is bad."""
        usual = self.best.mean.get("global.balanced_accuracy", np.nan)
        own = {name: value for name, value in recalls(self.best).items() if not np.isnan(value)}
        worst = min(own, key=lambda name: own[name], default=None)
        if worst is None or not own[worst] < MISSED * usual:
            return ""
        return (
            f"Mind class '{worst}': {own[worst]:.0%} of its test samples are recognised. Compare the loss "
            f"with class weights ({self.best.method}+balanced)."
        )


def _is_share(key: str) -> bool:
    return nature(key)[1] in ("percent", "share")


def _picture(summary: Summary) -> Card:
    """Every method with its interval, and what a constant answer gets."""
    import plotly.graph_objects as go

    standings, evidence = summary.standings, summary.evidence
    key = summary.best.metric
    shown = [standing for standing in standings if not np.isinf(standing.rank)][::-1]  # the best on top
    names = plain_each([standing.method for standing in shown])
    values = np.array([standing.mean.get(key, np.nan) for standing in shown])
    ends = np.array(
        [summary.interval(each) or (value, value) for each, value in zip(shown, values, strict=True)]
    )
    constant = baseline(standings).get(key)
    percent = {"tickformat": ".0%", "rangemode": "tozero"} if _is_share(key) else {}
    dots = go.Scatter(
        x=values,
        y=names,
        mode="markers",
        marker={
            "size": 11,
            "color": [OTHERS if each.method in evidence.references else "#0072B2" for each in shown],
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": ends[:, 1] - values,
            "arrayminus": values - ends[:, 0],
            "color": OTHERS,
            "thickness": 2,
            "width": 5,
        },
        text=[f"{plain}: {summary.value(each)}" for plain, each in zip(names, shown, strict=True)],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    lines: Sequence[object] = ()
    if constant is not None:
        lines = [
            go.Scatter(
                x=[constant] * len(names),
                y=names,
                mode="lines" if len(names) > 1 else "markers",
                line={"color": OTHERS, "dash": "dash"},
                name="most common answer",
                hovertemplate=f"most common answer: {constant:.1%}<extra></extra>",
            )
        ]
    seeds = len(evidence.seeds)
    how = (
        f"of the mean over {seeds} seeds" if seeds >= SEEDS else "by the number of test samples, not by seeds"
    )
    return Card(
        f"All methods by {spelled(key)}",
        f"Lines are 95 % intervals {how}. Grey: for reference.",
        figure=figure(
            [*lines, dots],
            spelled(key),
            "",
            130 + 34 * len(names),
            xaxis=percent,
            margin={"l": 8, "r": 16, "t": 8, "b": 48},
        ),
    )
