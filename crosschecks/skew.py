"""Measures of label skew and the Dirichlet partition against FedArtML; what it lacks, against SciPy."""

import importlib.metadata

import numpy as np
from scipy.spatial.distance import cdist, jensenshannon
from scipy.special import rel_entr

import fedcohort as fc
from crosschecks.asking import ask
from crosschecks.rows import Reason, Row, values
from fedcohort.data.partition import partitioner
from fedcohort.stats import label_distances

TITLE = "Label skew: FedArtML and SciPy"
ABOUT = """Label counts of 1797 handwritten digits dealt to 30 clients (Dirichlet, alpha 0.1: strong skew)
and to 100 (alpha 5: weak skew), and ten clients with one of two classes each. FedArtML has no PSI and no
distance to the pool; SciPy's relative entropy and city-block distance stand in, and its Jensen-Shannon
distance of two clients. The difference of partitions is the share of examples with another owner."""

SORTED = Reason(
    "fedartml",
    "FedArtML's EMD takes probabilities for samples: {} compares them sorted, whichever class they belong "
    "to, and clients that have no class in common score 0. `emd_fedartml` reproduces it for comparison with "
    "papers; `label_emd` is the distance of Zhao et al., between 0 and 2.",
    (("fedartml/function_base.py", "wasserstein_distance(D[i], D[j])"),),
)
OURS = {
    "Hellinger": label_distances.hellinger,
    "Jensen-Shannon": label_distances.jensen_shannon,
    "EMD": label_distances.emd_fedartml,
}
DIRICHLET = {"clients": 20, "alpha": 0.3}
SEED = 42


def run() -> tuple[list[Row], dict[str, str]]:
    labels = np.asarray(fc.load("digits").y)
    tables = {
        "strong skew": partitioner("dirichlet", clients=30, alpha=0.1, min_size=1)(labels).counts(labels),
        "weak skew": partitioner("dirichlet", clients=100, alpha=5.0, min_size=1)(labels).counts(labels),
        "one class each": 10 * np.repeat(np.eye(2), 5, axis=0),
    }
    problem = {**tables, "labels": labels, **{k: np.array(v) for k, v in DIRICHLET.items()}}
    theirs, versions = ask("fedartml", {**problem, "seed": np.array(SEED)})
    rows = [
        values(f"{name}, {table}", OURS[name](counts), theirs[table][name])
        for table, counts in tables.items()
        for name in OURS
    ]
    apart = label_distances.label_emd(tables["one class each"])
    rows.append(
        values("label_emd beside EMD, one class each", apart, theirs["one class each"]["EMD"], SORTED)
    )
    rows += [row for table, counts in tables.items() for row in against_scipy(table, counts)]
    rows.append(same_partition(labels, theirs["rows"]))
    return rows, {**versions, "scipy": importlib.metadata.version("scipy")}


def against_scipy(table: str, counts: np.ndarray) -> list[Row]:
    shares, pool = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
    size = counts.sum(axis=1) / counts.sum()
    p, q = shares + label_distances.EPS, pool + label_distances.EPS
    wpsi = float(size @ (rel_entr(p, q) + rel_entr(q, p)).sum(axis=1))
    apart = float(size @ cdist(shares, pool[None], "cityblock")[:, 0])
    pair = counts[[0, -1]]
    return [
        values(f"WPSI, {table}", label_distances.wpsi(counts), wpsi),
        values(f"label_emd, {table}", label_distances.label_emd(counts), apart),
        values(
            f"Jensen-Shannon of two, {table}",
            label_distances.jensen_shannon(pair),
            float(jensenshannon(*(pair / pair.sum(axis=1, keepdims=True)), base=2)),
        ),
    ]


def same_partition(labels: np.ndarray, theirs: list[list[int]]) -> Row:
    """Who owns which example, by FedArtML's own generator and seed."""
    ours = partitioner("dirichlet_fedartml", **DIRICHLET)(labels, SEED).owners
    shared = sum(len(np.intersect1d(a, b)) for a, b in zip(ours, theirs, strict=True))
    return Row(
        "Dirichlet partition, owners",
        "`dirichlet_fedartml`",
        "`dirichlet_method`",
        1 - shared / len(labels),
        1.0,
    )
