"""Which method does best where? The table behind ``fedcohort advise``, and how far its advice can be trusted.

    python -m studies.advice_grid --data DIR --workers 2    # hours; what is recorded is not done again

Federations are a random share of a grid of data, skews, numbers of clients and cohorts (advice_runs.py).
Each method takes the learning rate that is best for its data, on rows held out of a middle federation's
training rows, from the same few values for all. The table is written for the package (advice_table.py), and
judged on federations that it is not allowed to know (advice_regret.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedcohort.runs.advice.evidence import BASE, FEATURES, NAMES, Measured
from fedcohort.util.cpu import one_thread
from studies.advice_ranks import ranks_page
from studies.advice_regret import CHOSEN_ON, Regrets, regret_table, regrets, summary, trusted, verdict
from studies.advice_runs import (
    DATA,
    LAST,
    METHODS,
    RATES,
    SEEDS,
    SETTINGS,
    cases,
    describe,
    jobs,
    middle,
    train,
    tune,
)
from studies.advice_table import Rows, about, evidence_rows, write
from studies.dealing import HERE, collect, markdown
from studies.skew_metrics import arguments

SMOKE = {"rounds": 3, "evaluate": {"every": 1, "last": LAST}}
DOCS, MARKED = HERE.parent / "docs" / "advice.md", re.compile(r"<!-- regret -->.*<!-- end -->", re.DOTALL)
PACKAGE = HERE.parent / "src/fedcohort/runs/advice"


def main() -> None:
    parser = arguments()
    parser.description = __doc__
    parser.add_argument("--workers", type=int, default=1, help="processes, each on a core (1)")
    parser.add_argument("--write", action="store_true", help="train nothing: write what is recorded")
    asked = parser.parse_args()
    with one_thread():
        tables = record(asked.data, asked.out, asked.workers, asked.smoke, asked.write)
    rates, federations, runs = tables
    rows = evidence_rows(federations, runs)
    found = all_regrets(Measured.of(rows, {}))
    judged = {kind: trusted(own) for kind, own in found.items()}
    story = about(rows, runs, best_rates(rates)) | {"trusted": judged}
    write(PACKAGE if asked.out == HERE else asked.out, rows, story)
    if asked.out == HERE:
        guide = re.sub(MARKED, lambda _: f"<!-- regret -->\n{summary(found)}\n<!-- end -->", DOCS.read_text())
        DOCS.write_text(guide, encoding="utf-8")
    (asked.out / "advice_grid.md").write_text(page(*tables), encoding="utf-8")
    for name, text in ranks_page(Measured.of(rows, {})).items():
        ((DOCS.parent if asked.out == HERE else asked.out) / name).write_text(text, encoding="utf-8")


def record(
    data: Path | None, out: Path, workers: int, smoke: bool, write_only: bool
) -> tuple[Rows, Rows, Rows]:
    """Learning rates, federations and runs, each in a file of its own."""
    names, methods, tried = tuple(DATA), METHODS, RATES
    if smoke:
        names, methods, tried = ("digits",), METHODS[:3], RATES[-1:]
    few = middle("digits"), middle("digits")._replace(cohort=1.0), middle("digits")._replace(epsilon=1.0)
    found = few if smoke else cases(names)
    settings, methods = SMOKE if smoke else {}, () if write_only else methods
    rates = collect(
        out / "advice_rates.csv",
        ("data", "method", "lr"),
        [(name, method, rate) for name in names for method in methods for rate in tried],
        partial(tune, data, settings),
        workers,
    )
    federations = collect(
        out / "advice_federations.csv",
        (*NAMES, "seed"),
        [(*case, seed) for case in found for seed in SEEDS],
        partial(describe, data),
    )
    none = {tuple(row[key] for key in NAMES) for row in federations if not row[FEATURES[0]]}
    runs = collect(
        out / "advice_runs.csv",
        (*NAMES, "method", "seed"),
        jobs([case for case in found if tuple(map(str, case)) not in none], methods),
        partial(train, data, best_rates(rates), settings),
        workers,
    )
    return rates, federations, runs


def best_rates(rows: Rows) -> dict[tuple[str, str], float]:
    """By data and method; of equally good rates the smaller."""
    best: dict[tuple[str, str], Mapping[str, str]] = {}
    for row in rows:
        key = row["data"], row["method"]
        if key not in best or float(row["accuracy"]) > float(best[key]["accuracy"]):
            best[key] = row
    return {key: float(row["lr"]) for key, row in best.items()}


def all_regrets(evidence: Measured) -> dict[str, Regrets]:
    """By kind of advice, as :func:`fedcohort.runs.advice.prediction.kinds` names them."""
    exact, noised = (evidence.where(np.isnan(evidence.epsilon) == known) for known in (True, False))
    return {
        "any": regrets(exact, one_model=False),
        "one_model": regrets(exact, one_model=True),
        "noised": regrets(noised, one_model=False),
    }


def wins(evidence: Measured, rates: Mapping[tuple[str, str], float]) -> Iterator[Sequence[str]]:
    """How each method did on all federations, the best first."""
    most = np.nanmax(list(evidence.gain.values()), axis=0)
    for method in sorted(evidence.gain, key=lambda method: -float(np.nanmean(evidence.gain[method]))):
        gain = evidence.gain[method]
        known = int((~np.isnan(gain)).sum())
        taken = sorted(rate for (_, name), rate in rates.items() if name == method)
        several = " to ".join(f"{rate:g}" for rate in dict.fromkeys((taken[0], taken[-1])))
        yield (
            f"`{method}`",
            f"{100 * np.nanmean(gain):+.1f}",
            f"{int((gain >= most).sum())} of {known}",
            several,
        )


def page(rates: Rows, federations: Rows, runs: Rows) -> str:
    evidence = Measured.of(evidence_rows(federations, runs), {})
    exact, found = evidence.where(np.isnan(evidence.epsilon)), all_regrets(evidence)
    return PAGE.format(
        federations=len(exact),
        twice=int((~np.isnan(exact.error[BASE])).sum()),
        noised=len(evidence) - len(exact),
        runs=len(runs),
        rounds=SETTINGS["rounds"],
        last=LAST,
        rates=", ".join(map(str, RATES)),
        chosen_on=CHOSEN_ON,
        **{f"{kind}_table": regret_table(own) for kind, own in found.items()},
        **{f"{kind}_verdict": verdict(own) for kind, own in found.items()},
        wins=markdown(["method", "mean gain", "best on", "lr"], wins(exact, best_rates(rates))),
    )


PAGE = """\
# Advice, and how far to trust it

`python -m studies.advice_grid --data DIR --workers 2` writes this page and the table that `fedcohort advise`
reads. It takes hours, and goes on where it was stopped.

{federations} federations so far, {twice} of them with two seeds, and {noised} also with noised label counts;
{runs} runs. They are a random share of a grid of data (2,000 rows of MNIST, Fashion-MNIST, HAR and Adult; the
digits), skews, numbers of clients and cohorts. A network with 64 hidden units is trained for {rounds} rounds.
Accuracy is that of all test samples, each answered by the model that serves its client, averaged over the
last {last} rounds. Each method takes the learning rate of {rates} that is best for its data, on
rows held out of the training rows of one federation (20 clients, alpha 0.3, 30% a round, first seed). Other
settings are the methods' defaults, but for those named.

The *regret* of a choice is what the best method of that federation would have had more, in points of
accuracy; means over federations, 95% intervals by drawing federations again. A chooser knows no federation of
the same data (*other data*), none dealt by the same protocol (*other skew*), or neither. *Nearest
federations* is what `fedcohort advise` does.

The features by which federations are compared, and that twelve of them count, were chosen by this regret
among thirteen sets of features and four numbers when {chosen_on} federations were there. When 82 were there,
another 64 variants were tried and none was taken. So the regret of advice flatters a little; federations that
came after the choice are told apart below.

## Any method

{any_table}

{any_verdict}

## One model for all

{one_model_table}

{one_model_verdict}

## Noised label counts

{noised_table}

{noised_verdict}

## All methods

On all federations; *lr* is the range over data.

{wins}
"""


if __name__ == "__main__":
    main()
