"""The leaderboard, and whether differences between methods are more than luck of the seed."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedcohort.core.evaluate import READABLE, VALIDATION
from fedcohort.core.round.merge import too_short
from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Card, TextTable
from fedcohort.runs.outcomes.conditions import in_words
from fedcohort.runs.outcomes.over_rounds import ACCURACY, titles
from fedcohort.runs.outcomes.standings import (
    BASELINE,
    SCOPES,
    UNKNOWN,
    Standing,
    aside_columns,
    baseline,
    cell,
    class_columns,
    columns,
    how_ranked,
    nature,
    recalls,
    remarks,
    rounds_cells,
    spelled,
    uneven,
    verdict,
)
from fedcohort.stats.intervals import LEVEL
from fedcohort.stats.paired import SEEDS, Paired, holm, paired

LOSSES = (f"{VALIDATION}global.loss", "global.loss")
FOUND = {  # by whether test samples ranked methods
    True: "The first method was found by these very seeds, which flatters it.",
    False: "The first method was found by validation samples, so these differences are not flattered.",
}


def standings_of(evidence: Evidence) -> list[Standing]:
    """Best first; those that nobody could use, as they need all data in one place, after all others."""
    return sorted(evidence.ranked, key=lambda standing: standing.method in evidence.pooled)


def copies_of(evidence: Evidence, standings: Sequence[Standing]) -> dict[str, str]:
    """Of methods whose loss was, to the last bit, that of one listed before them in every round of every
    seed: that one. Selectors, for instance, have nothing to choose when everybody trains."""
    first: dict[tuple[object, ...], str] = {}
    copies = {}
    for title in (standing.method for standing in standings):
        runs = sorted((run for run in evidence.runs if run.title == title), key=lambda run: run.seed)
        curves = [next((run.curves[key][1] for key in LOSSES if key in run.curves), None) for run in runs]
        losses = [curve.tobytes() for curve in curves if curve is not None]
        if len(losses) == len(runs):
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
        pairs = _common(evidence.runs, leader, other.method)
        if len(pairs) >= SEEDS:
            found[other.method] = paired(*zip(*pairs, strict=True))
    adjusted = holm([result.p for result in found.values()])
    return {title: result._replace(p=p) for (title, result), p in zip(found.items(), adjusted, strict=True)}


def _common(runs: Sequence[Run], leader: Standing, theirs: str) -> list[tuple[float, float]]:
    """The numbers of two methods on the same data and seed, of test samples, more being better; one that goes
    on has none yet."""
    ours, key, sign = leader.method, leader.metric, 1 if nature(leader.metric)[0] else -1
    final = {
        (run.title, run.seed, run.facts["fingerprint"]): sign * run.metrics.get(key, np.nan)
        for run in runs
        if run.complete
    }
    pairs = []
    for (title, *condition), value in final.items():
        partner = final.get((theirs, *condition))
        if title == ours and partner is not None and np.isfinite([value, partner]).all():
            pairs.append((value, partner))
    return pairs


def leaderboard_card(evidence: Evidence) -> Card:
    standings = standings_of(evidence)
    tests = against_leader(evidence, standings)
    seeds = max(len(standing.seeds) for standing in standings)
    told = [*columns(standings), *class_columns(standings), *aside_columns(standings)]
    heads = ["method", ">seeds", *(">" + title.strip().replace("\n", " ") for _, title, _, _ in told)]
    if tests:
        scale = "points" if is_share(standings[0].metric) else "how far"
        heads += [f">{scale} behind the best (95\u00a0%)", ">p (Holm)"]
    rows, strong = [], set()
    for standing in standings:
        known = {key: value for key, value in standing.mean.items() if not np.isnan(value)}
        shown = [
            cell(known[key], standing.std[key], kind, seeds > 1) if key in known else "–"
            for key, _, _, kind in told
        ]
        rows.append([standing.method, str(len(standing.seeds)), *shown, *_test_cells(standing, tests)])
    for column, (key, _, more, _) in enumerate(told):  # pooled ones are the last rows, and never the best
        values = [
            round(one.mean.get(key, np.nan), 9) for one in standings if one.method not in evidence.pooled
        ]
        if more is not None and len(set(values)) > 1 and not np.isnan(values).all():
            best = np.nanmax(values) if more else np.nanmin(values)
            strong |= {(row, column + 2) for row, value in enumerate(values) if value == best}
    if constant := baseline(standings):
        numbers = [cell(constant.get(key, np.nan), 0, kind, False) for key, _, _, kind in told]
        rows.append([BASELINE, "", *numbers, *["–"] * (2 if tests else 0)])
    where = f"Runs with {in_words(evidence.settings)} only. " if evidence.settings else ""
    spread = f"Mean ± standard deviation of up to {seeds} seeds. " if seeds > 1 else "One seed. "
    spread += f"{how_ranked(standings[0].ranked_by)} "
    table = TextTable(heads, rows, frozenset(strong))
    return Card("Leaderboard", where + spread + SCOPES, _words(evidence), table, note=_note(standings, tests))


def recall_card(evidence: Evidence) -> Card | None:
    """How many of each class are recognised."""
    standings = standings_of(evidence)
    known = {standing.method: recalls(standing) for standing in standings}
    names = list(dict.fromkeys(name for own in known.values() for name in own))
    if not names:
        return None
    few = sorted(names, key=lambda name: _worst(name, known.values()))[:READABLE]
    shown = [name for name in names if name in few]
    rows = [
        [method, *(cell(own.get(name, np.nan), 0, "percent", False) for name in shown)]
        for method, own in known.items()
    ]
    about = "Of all test samples of a class, those that are recognised; mean over seeds."
    if len(shown) < len(names):
        about += f" The {len(shown)} of {len(names)} classes that are recognised worst."
    return Card(
        "Recall of each class", about, table=TextTable(["method", *(f">{name}" for name in shown)], rows)
    )


def _worst(name: str, recalls: Iterable[dict[str, float]]) -> float:
    """By any method; a class without test samples comes last."""
    return min((own[name] for own in recalls if not np.isnan(own.get(name, np.nan))), default=np.inf)


def is_share(key: str) -> bool:
    """Whether differences of a number are told in hundredths."""
    return nature(key)[1] in ("percent", "share")


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
    return Card("Over the rounds", about, table=TextTable(columns, rows))


def _words(evidence: Evidence) -> list[str]:
    standings = standings_of(evidence)
    copies = copies_of(evidence, standings)
    words = [verdict(standings)] if standings[0].findings else []
    words += [headline(evidence), *remarks(standings)]
    words += [
        f"{copy} gave exactly the losses of {other} in every seed, so the two count as one."
        for copy, other in copies.items()
    ]
    words += dict.fromkeys(
        f"{run.title}: {caution}."
        for run in evidence.runs
        if run.grouping is not None and (caution := too_short(run.grouping, run.asked.rounds))
    )
    if caution := uneven(standings, evidence.references):
        words.append(f"{caution}.")
    if not all(run.complete for run in evidence.runs):
        words.append("Not all runs are complete: each number is the last that was measured.")
    return words


def _note(standings: Sequence[Standing], tests: dict[str, Paired]) -> str:
    """How differences were tested, or what it would take."""
    if tests:
        return (
            f"The last columns compare {spelled(standings[0].metric)} with that of the first method on "
            "the same seeds, data and partition: the mean difference"
            f"{' in percentage points' * is_share(standings[0].metric)} with its 95 % interval, and the p of "
            f"a paired t-test, adjusted by Holm for {len(tests)} test{'s' * (len(tests) > 1)} (the intervals "
            f"are not). {FOUND[standings[0].ranked_by == standings[0].metric]} Few seeds can prove large "
            "differences only."
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
    if is_share(standing.metric):
        gap = f"{100 * test.mean:.1f} ({100 * test.low:.1f} to {100 * test.high:.1f})"
    else:
        gap = f"{test.mean:.3f} ({test.low:.3f} to {test.high:.3f})"
    return [gap, "–" if np.isnan(test.p) else "< 0.001" if test.p < 0.001 else f"{test.p:.3f}"]


def headline(evidence: Evidence) -> str:
    """Which method is best, and how sure that is."""
    ranked = standings_of(evidence)
    copies = copies_of(evidence, ranked)
    standings = [standing for standing in ranked if standing.method not in copies]
    best = standings[0]
    key, accuracy = best.metric, best.mean.get(ACCURACY, np.nan)
    if np.isinf(best.rank):
        return UNKNOWN
    if len(standings) == 1:
        return f"{best.method} answers {accuracy:.1%} of all test samples right (global)."
    better = [other.method for other in standings[1:] if other.rank < best.rank]
    aside = f" ({', '.join(better)} aside, for reference)" if better else ""
    value = cell(best.mean.get(key, np.nan), 0, nature(key)[1], False)
    where = " on validation samples, on test samples" if best.ranked_by.startswith(VALIDATION) else ","
    text = f"{best.method} is best by {spelled(key)}{aside}{where} {value}"
    tests = against_leader(evidence, standings)
    return f"{text}{sureness(tests, len(standings) - 1)}"


def sureness(tests: dict[str, Paired], others: int) -> str:
    """Of a lead over so many other methods: how much of it may be luck."""
    if not tests:
        return f"; with fewer than {SEEDS} common seeds nothing says how much of the lead is luck."
    beaten = [title for title, test in tests.items() if test.p < LEVEL and test.mean > 0]
    if len(beaten) == others:
        return f", significantly ahead of every other method (paired t-tests, Holm, p < {LEVEL})."
    seeds = max(test.seeds for test in tests.values())
    how = f"(paired t-tests over {seeds} seeds, Holm, p < {LEVEL})"
    if not beaten:
        return f", but it is not surely better than any other method {how}."
    return f"; significant is its lead over {', '.join(beaten)} {how}."
