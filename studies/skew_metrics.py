"""Does a measure of label skew follow the skew, and which one tells it best? (Clust-PSI-PFL, Figs. 3 and 4)

    make studies                              # or: python -m studies.skew_metrics --data DIR

Data sets are dealt by Dirichlet(alpha) and by Similarity(S), and four measures are taken of every partition.
Then alpha or S is predicted from the four, by four kinds of regression, and a measure's importance is how
much worse the prediction of held-out partitions is when that measure is shuffled among them.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.stats import label_distances
from studies.dealing import HERE, available, collect, deal, fingerprint, markdown, spread, timed

ALPHAS = (50.0, 10.0, 5.0, 2.0, 1.0, 0.7, 0.5, 0.3, 0.2, 0.09, 0.05)  # the paper's six and five of ours
SHARES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.06, 0.03, 0.01, 0.0)  # the paper's three and eight of ours
LEVELS = {"dirichlet": ALPHAS, "similarity": SHARES}
CLIENTS, SEEDS = (10, 50, 100), range(5)
DATA = ("fmnist", "cifar10", "sent140", "acs")
MEASURES = {
    "wpsi": label_distances.wpsi,
    "hellinger": label_distances.hellinger,
    "jensen_shannon": label_distances.jensen_shannon,
    "emd_fedartml": label_distances.emd_fedartml,
}
KEYS = ("data", "protocol", "level", "clients", "seed")
Rows = Sequence[Mapping[str, str]]


def main() -> None:
    from threadpoolctl import threadpool_limits

    asked = arguments().parse_args()
    names = ("digits",) if asked.smoke else DATA
    found = available(names, asked.data)
    rows = measure(found, asked.out / "skew_metrics.csv", asked.smoke)
    with threadpool_limits(1):  # the tables are small: threads would wait for each other
        labels = fingerprint(*found.values())
        scores = importances(rows, asked.out / "skew_importance.csv", labels, asked.smoke)
    (asked.out / "skew_metrics.md").write_text(page(rows, scores), encoding="utf-8")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder with real data, as for fedcohort")
    parser.add_argument("--out", type=Path, default=HERE, help="where results go, and are continued")
    parser.add_argument("--smoke", action="store_true", help="a few partitions of the digits, in seconds")
    return parser


def measure(found: Mapping[str, np.ndarray], path: Path, smoke: bool) -> list[dict[str, str]]:
    """Every measure of every partition; those that no draw gives are marked by empty cells."""

    def jobs() -> Iterator[tuple[str, str, float, int, int]]:
        for name in found:
            for protocol, levels in LEVELS.items():
                for level in levels[::3] if smoke else levels:
                    for clients in CLIENTS[:1] if smoke else CLIENTS:
                        for seed in SEEDS[:2] if smoke else SEEDS:
                            yield name, protocol, level, clients, seed

    def work(name: str, protocol: str, level: float, clients: int, seed: int) -> dict[str, Any]:
        from fedcohort.util.errors import UserError

        try:
            counts = deal(protocol, level, clients, seed, found[name]).counts(found[name])
        except UserError:
            return {**dict.fromkeys(MEASURES, ""), "labels": labels[name]}
        measures = {key: round(function(counts), 6) for key, function in MEASURES.items()}
        return {**measures, "labels": labels[name]}

    labels = {name: fingerprint(y) for name, y in found.items()}
    return collect(path, KEYS, jobs(), timed(work))


def regressors() -> dict[str, Any]:
    """The paper's four; scikit-learn's gradient boosting stands for LightGBM."""
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR
    from sklearn.tree import DecisionTreeRegressor

    mlp = MLPRegressor(hidden_layer_sizes=(16,), alpha=1.0, solver="lbfgs", max_iter=1000, random_state=0)
    return {
        "gradient boosting": GradientBoostingRegressor(random_state=0),
        "SVM": make_pipeline(StandardScaler(), SVR(C=10.0)),
        "MLP": make_pipeline(StandardScaler(), mlp),
        "regression tree": DecisionTreeRegressor(max_depth=6, random_state=0),
    }


def importances(rows: Rows, path: Path, labels: str, smoke: bool) -> list[dict[str, str]]:
    """Of each measure for each regression: what R² of held-out partitions loses when it is shuffled."""
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    times = 2 if smoke else 10
    path.unlink(missing_ok=True)  # it follows from the partitions, which may be more by now

    def work(protocol: str, name: str) -> dict[str, Any]:
        own = [row for row in rows if row["protocol"] == protocol and row["wpsi"]]
        x = np.array([[float(row[key]) for key in MEASURES] for row in own])
        level = np.array([float(row["level"]) for row in own])
        y = np.log10(level) if protocol == "dirichlet" else level
        score, drops = [], []
        for train, test in KFold(2 if smoke else 5, shuffle=True, random_state=0).split(x):
            model = regressors()[name].fit(x[train], y[train])
            score.append(model.score(x[test], y[test]))
            shuffled = permutation_importance(model, x[test], y[test], n_repeats=times, random_state=0)
            drops.append(shuffled.importances_mean)
        mean = np.mean(drops, axis=0)
        told = {"r2": round(float(np.mean(score)), 4), **dict(zip(MEASURES, mean.round(4), strict=True))}
        return {**told, "labels": labels}

    jobs = [(protocol, name) for protocol in LEVELS for name in regressors()]
    return collect(path, ("protocol", "model"), jobs, timed(work))


def page(rows: Rows, scores: Rows) -> str:
    names = list(dict.fromkeys(row["data"] for row in rows))
    parts = [f"# Measures of label skew\n\n{ABOUT}", f"Data: {', '.join(names)}. Rows: skew_metrics.csv."]
    for protocol, letter in (("dirichlet", "alpha"), ("similarity", "S")):
        parts.append(f"## {letter} (Fig. 3)\n\n{levels_table(rows, protocol, letter)}")
        own = [row for row in scores if row["protocol"] == protocol]
        cells = [[row["model"], *(f"{float(row[key]):.3f}" for key in ("r2", *MEASURES))] for row in own]
        first = [row["model"] for row in own if max(MEASURES, key=lambda key: float(row[key])) == "wpsi"]
        found = f"The paper has WPSI first in every model; here it is in: {', '.join(first) or 'none'}."
        columns = ["model", "R²", *MEASURES]
        parts.append(f"## Which predicts {letter} (Fig. 4)\n\n{found}\n\n{markdown(columns, cells)}")
    return "\n\n".join(parts) + "\n"


def levels_table(rows: Rows, protocol: str, letter: str) -> str:
    cells = []
    for level in dict.fromkeys(row["level"] for row in rows if row["protocol"] == protocol):
        own = [row for row in rows if row["protocol"] == protocol and row["level"] == level]
        dealt = [row for row in own if row["wpsi"]]
        values = [spread([float(row[key]) for row in dealt]) if dealt else "–" for key in MEASURES]
        cells.append([f"{float(level):g}", *values, f"{len(dealt)} of {len(own)}"])
    return markdown([letter, *MEASURES, "partitions"], cells)


ABOUT = """\
`make studies` writes this page; `python -m studies.skew_metrics --data DIR` this one alone. Data sets are
dealt to 10, 50 and 100 clients with seeds 0 to 4. Of the eleven alphas and shares S that the paper tried it
prints six and three; the others are ours. No client is empty (`min_size = 1`); a partition that 200 draws do
not give is left out. Means ± standard deviation over data sets, numbers of clients and seeds.

*R²* and importances are those of partitions held out by five-fold cross-validation; alpha is predicted as its
logarithm. An importance is what R² loses when a measure is shuffled. The measures overlap, and where one can
stand in for another they share their importance. `emd_fedartml` is FedArtML's EMD, of sorted shares."""


if __name__ == "__main__":
    main()
