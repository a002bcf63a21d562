"""The leaderboard, and whether differences between methods are more than luck of the seed."""

from collections.abc import Sequence

import numpy as np

from fedcohort.core.round.merge import too_short
from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Card, Table
from fedcohort.runs.conditions import in_words
from fedcohort.runs.over_rounds import titles
from fedcohort.runs.standings import SCOPES, Standing, cell, columns, rank, rounds_cells, uneven
from fedcohort.stats.paired import LEVEL, SEEDS, Paired, holm, paired

MAIN = "global.accuracy"
LOSS = "global.loss"


def standings_of(evidence: Evidence) -> list[Standing]:
    """Best first; references, which are no federated methods, after all others."""
    ranked, references = rank([run.outcome for run in evidence.runs]), evidence.references
    return sorted(ranked, key=lambda standing: standing.method in references)


def copies_of(evidence: Evidence, standings: Sequence[Standing]) -> dict[str, str]:
    """Of methods whose loss was, to the last bit, that of one listed before them in every round of every
    seed: that one. Selectors, for instance, have nothing to choose when everybody trains."""
    first: dict[tuple[object, ...], str] = {}
    copies = {}
    for title in (standing.method for standing in standings):
        runs = sorted((run for run in evidence.runs if run.title == title), key=lambda run: run.seed)
        if all(LOSS in run.curves for run in runs):
            losses = (run.curves[LOSS][1].tobytes() for run in runs)
            went = tuple(zip((run.seed for run in runs), losses, strict=True))
            if first.setdefault(went, title) != title:
                copies[title] = first[went]
    return copies


def against_leader(evidence: Evidence, standings: Sequence[Standing]) -> dict[str, Paired]:
    """Each method against the first, where enough seeds are common; p adjusted by Holm. A copy of another is
    no further test."""
    copies = copies_of(evidence, standings)
    leader, *others = (standing for standing in standings if standing.method not in copies)
    found = {}
    for other in others:
        pairs = _common(evidence.runs, leader.method, other.method)
        if len(pairs) >= SEEDS:
            found[other.method] = paired(*zip(*pairs, strict=True))
    adjusted = holm([result.p for result in found.values()])
    return {title: result._replace(p=p) for (title, result), p in zip(found.items(), adjusted, strict=True)}


def _common(runs: Sequence[Run], ours: str, theirs: str) -> list[tuple[float, float]]:
    """Final accuracies of two methods on the same data and seed; one that goes on has none yet."""
    final = {
        (run.title, run.seed, run.facts["fingerprint"]): run.metrics.get(MAIN) for run in runs if run.complete
    }
    pairs = []
    for (title, *condition), value in final.items():
        partner = final.get((theirs, *condition))
        if (
            title == ours
            and value is not None
            and partner is not None
            and np.isfinite([value, partner]).all()
        ):
            pairs.append((value, partner))
    return pairs


def leaderboard_card(evidence: Evidence) -> Card:
    standings, references = standings_of(evidence), evidence.references
    tests = against_leader(evidence, standings)
    seeds = max(len(standing.seeds) for standing in standings)
    told = columns(standings)
    heads = ["method", ">seeds", *(">" + title.replace("\n", " ") for _, title, _, _ in told)]
    if tests:
        heads += [">points behind the best (95\u00a0%)", ">p (Holm)"]
    rows, strong = [], set()
    for standing in standings:
        known = {key: value for key, value in standing.mean.items() if not np.isnan(value)}
        shown = [
            cell(known[key], standing.std[key], kind, seeds > 1) if key in known else "–"
            for key, _, _, kind in told
        ]
        rows.append([standing.method, str(len(standing.seeds)), *shown, *_test_cells(standing, tests)])
    for column, (key, _, more, _) in enumerate(told):  # references are the last rows, and never the best
        values = [round(one.mean.get(key, np.nan), 9) for one in standings if one.method not in references]
        if more is not None and len(set(values)) > 1 and not np.isnan(values).all():
            best = np.nanmax(values) if more else np.nanmin(values)
            strong |= {(row, column + 2) for row, value in enumerate(values) if value == best}
    where = f"Runs with {in_words(evidence.settings)} only. " if evidence.settings else ""
    spread = f"Mean ± standard deviation of up to {seeds} seeds. " if seeds > 1 else "One seed. "
    table = Table(heads, rows, frozenset(strong))
    return Card("Leaderboard", where + spread + SCOPES, _words(evidence), table, note=_note(standings, tests))


def rounds_card(evidence: Evidence) -> Card | None:
    """Global accuracy summed up over rounds, as far as the runs' experiments asked for it."""
    standings = standings_of(evidence)
    wanted = titles(dict.fromkeys(key for standing in standings for key in standing.mean))
    if not wanted:
        return None
    columns = ["method", *(f">{title}" for title in wanted.values())]
    rows = [[standing.method, *rounds_cells(standing, wanted)] for standing in standings]
    about = "Global accuracy of the evaluated rounds: means over the last rounds or over blocks of rounds, "
    about += "the best round, a moving average at the end."
    return Card("Over the rounds", about, table=Table(columns, rows))


def _words(evidence: Evidence) -> list[str]:
    copies = copies_of(evidence, standings_of(evidence))
    words = [headline(evidence)]
    words += [
        f"{copy} gave exactly the losses of {other} in every seed, so the two count as one."
        for copy, other in copies.items()
    ]
    words += dict.fromkeys(
        f"{run.title}: {caution}."
        for run in evidence.runs
        if run.grouping is not None and (caution := too_short(run.grouping, run.asked.rounds))
    )
    if caution := uneven(standings_of(evidence), evidence.references):
        words.append(f"{caution}.")
    if not all(run.complete for run in evidence.runs):
        words.append("Not all runs are complete: each number is the last that was measured.")
    return words


def _note(standings: Sequence[Standing], tests: dict[str, Paired]) -> str:
    """How differences were tested, or what it would take."""
    if tests:
        return (
            "The last columns compare global accuracy with that of the first method on the same seeds, data "
            "and partition: the mean difference in percentage points with its 95 % interval, and the p of a "
            f"paired t-test, adjusted by Holm for {len(tests)} test{'s' * (len(tests) > 1)} (the intervals "
            "are not). The first method was found by these very seeds, which flatters it, and few seeds can "
            "prove large differences only."
        )
    return (
        f"With {SEEDS} complete seeds or more, differences would be tested too." if len(standings) > 1 else ""
    )


def _test_cells(standing: Standing, tests: dict[str, Paired]) -> list[str]:
    if not tests:
        return []
    if standing.method not in tests:
        return ["–", "–"]
    test = tests[standing.method]
    gap = f"{100 * test.mean:.1f} ({100 * test.low:.1f} to {100 * test.high:.1f})"
    return [gap, "–" if np.isnan(test.p) else "< 0.001" if test.p < 0.001 else f"{test.p:.3f}"]


def headline(evidence: Evidence) -> str:
    """Which method is best, and how sure that is."""
    ranked = standings_of(evidence)
    copies = copies_of(evidence, ranked)
    standings = [standing for standing in ranked if standing.method not in copies]
    best = standings[0]
    accuracy = best.mean.get(MAIN, np.nan)
    if np.isnan(accuracy):
        return "No accuracy is known: these runs had no test samples, or have not been evaluated yet."
    if len(standings) == 1:
        return f"{best.method} answers {accuracy:.1%} of all test samples right (global)."
    better = [other.method for other in standings[1:] if other.mean.get(MAIN, np.nan) > accuracy]
    aside = f" ({', '.join(better)} aside, for reference)" if better else ""
    text = f"{best.method} is best by global accuracy{aside}, {accuracy:.1%}"
    tests = against_leader(evidence, standings)
    if not tests:
        return f"{text}; with fewer than {SEEDS} common seeds nothing says how much of the lead is luck."
    beaten = [title for title, test in tests.items() if test.p < LEVEL and test.mean > 0]
    if len(beaten) == len(standings) - 1:
        return f"{text}, significantly ahead of every other method (paired t-tests, Holm, p < {LEVEL})."
    seeds = max(test.seeds for test in tests.values())
    how = f"(paired t-tests over {seeds} seeds, Holm, p < {LEVEL})"
    if not beaten:
        return f"{text}, but its lead over any other method may be luck of the seeds {how}."
    return f"{text}; significant is its lead over {', '.join(beaten)} {how}."
