"""How many groups do clients form? (Clust-PSI-PFL, Figs. 5 and 6; CAFA, Tables II and III)

    make studies                              # or: python -m studies.number_of_groups --data DIR

Clust-PSI-PFL's number of groups by silhouette, for 10, 50 and 100 clients; and whether CAFA's largest cluster
is that of its IID clients.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.data.partition import partitioner
from fedcohort.stats.clustering import ChosenGroups, kmeans_by_silhouette
from fedcohort.stats.label_distances import proportions
from fedcohort.stats.label_groups import psi_features, standardise
from scripts.chart import lines
from studies.dealing import available, collect, deal, fingerprint, markdown, timed
from studies.skew_metrics import arguments

PARTITIONS = (("dirichlet", 0.3), ("similarity", 0.0))  # those of the paper's figures
CLIENTS, SEEDS = (10, 50, 100), range(5)
DATA = ("acs", "sent140", "cifar10")
CASES = ((20, 0.25), (40, 0.25), (60, 0.25), (20, 0.5), (40, 0.5), (60, 0.5))  # clients, share of IID ones
Rows = Sequence[Mapping[str, str]]


def main() -> None:
    parser = arguments()
    parser.description = __doc__
    asked = parser.parse_args()
    found = available(("digits",) if asked.smoke else DATA, asked.data)
    numbers = count_groups(found, asked.out / "number_of_groups.csv", asked.smoke)
    iid_of = "digits" if asked.smoke else "cifar10"
    if iid_of not in found:
        sys.exit(f"{iid_of} is needed to find IID clients")
    found_iid = find_iid(found[iid_of], asked.out / "iid_clients.csv", asked.smoke)
    (asked.out / "number_of_groups.md").write_text(page(numbers, found_iid), encoding="utf-8")
    for name, picture in charts(numbers).items():
        (asked.out / name).write_text(picture, encoding="utf-8")


def count_groups(found: Mapping[str, np.ndarray], path: Path, smoke: bool) -> list[dict[str, str]]:
    """Clust-PSI-PFL's number of groups, and the silhouette of every number it tries."""
    jobs = [
        (name, protocol, level, clients, seed)
        for name in found
        for protocol, level in PARTITIONS
        for clients in (CLIENTS[:1] if smoke else CLIENTS)
        for seed in (SEEDS[:2] if smoke else SEEDS)
    ]

    def work(name: str, protocol: str, level: float, clients: int, seed: int) -> dict[str, Any]:
        counts = deal(protocol, level, clients, seed, found[name]).counts(found[name])
        choice = kmeans_by_silhouette(standardise(psi_features(counts)).features, None, seed)
        curve = {str(groups): round(score, 4) for groups, score in choice.scores.items()}
        return {"groups": choice.k, "silhouettes": json.dumps(curve), "labels": fingerprint(found[name])}

    return collect(path, ("data", "protocol", "level", "clients", "seed"), jobs, timed(work))


def find_iid(y: np.ndarray, path: Path, smoke: bool) -> list[dict[str, str]]:
    """CAFA's classification of clients: who is in the largest cluster of label shares is IID."""
    from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

    def work(clients: int, iid: float, seed: int) -> dict[str, Any]:
        dealt = partitioner("partly_iid", clients=clients, iid=iid, low=0.2, high=0.4)(y, seed)
        choice: ChosenGroups = kmeans_by_silhouette(proportions(dealt.counts(y)), None, seed)
        guess = (choice.labels == np.bincount(choice.labels).argmax()).astype(int)
        scores = {
            "accuracy": accuracy_score(dealt.truth, guess),
            "precision": precision_score(dealt.truth, guess, zero_division=0),
            "recall": recall_score(dealt.truth, guess),
            "f1": f1_score(dealt.truth, guess),
        }
        rounded = {key: round(float(score), 4) for key, score in scores.items()}
        return {"clusters": choice.k, **rounded, "labels": fingerprint(y)}

    jobs = [
        (*case, seed) for case in (CASES[:1] if smoke else CASES) for seed in (SEEDS[:2] if smoke else SEEDS)
    ]
    return collect(path, ("clients", "iid", "seed"), jobs, timed(work))


def charts(numbers: Rows) -> dict[str, str]:
    """Figs. 5 and 6: the first seed's silhouettes with most clients, and the seeds' median of groups."""
    kinds = list(dict.fromkeys((row["data"], row["protocol"], row["level"]) for row in numbers))
    most = max(int(row["clients"]) for row in numbers)
    silhouettes, groups = {}, {}
    for kind in kinds:
        own = [row for row in numbers if (row["data"], row["protocol"], row["level"]) == kind]
        name = f"{kind[0]}, {kind[1]} {float(kind[2]):g}"
        largest = next(row for row in own if int(row["clients"]) == most)
        silhouettes[name] = [(int(k), s) for k, s in json.loads(largest["silhouettes"]).items()]
        groups[name] = [
            (clients, float(np.median([int(row["groups"]) for row in own if int(row["clients"]) == clients])))
            for clients in sorted({int(row["clients"]) for row in own})
        ]
    return {
        "silhouettes.svg": lines(
            f"Silhouette by number of groups, {most} clients", silhouettes, "groups", ""
        ),
        "number_of_groups.svg": lines("Groups by number of clients", groups, "clients", ""),
    }


def page(numbers: Rows, found_iid: Rows) -> str:
    cells = []
    for name, protocol in dict.fromkeys((row["data"], row["protocol"]) for row in numbers):
        own = [row for row in numbers if (row["data"], row["protocol"]) == (name, protocol)]
        for clients in dict.fromkeys(row["clients"] for row in own):
            chosen = [row["groups"] for row in own if row["clients"] == clients]
            cells.append([f"{name}, {protocol} {float(own[0]['level']):g}", clients, ", ".join(chosen)])
    tested = []
    for clients, iid in dict.fromkeys((row["clients"], row["iid"]) for row in found_iid):
        own = [row for row in found_iid if (row["clients"], row["iid"]) == (clients, iid)]
        scores = ("accuracy", "precision", "recall", "f1")
        means = [f"{np.mean([float(row[key]) for row in own]):.2f}" for key in scores]
        tested.append([f"{float(iid):.0%} of {clients}", ", ".join(row["clusters"] for row in own), *means])
    return PAGE.format(
        groups=markdown(("partition", "clients", "groups, seeds 0 to 4"), cells),
        iid=markdown(("IID clients", "clusters", "accuracy", "precision", "recall", "F1"), tested),
    )


PAGE = """\
# The number of groups

`make studies` writes this page; `python -m studies.number_of_groups --data DIR` this one alone.

## Clust-PSI-PFL's number of groups (Fig. 6)

K-means on standardised PSI features for 2 to K - 1 groups; the number of the best silhouette. The silhouettes
of all numbers (Fig. 5) are in number_of_groups.csv. The paper has 3 or 4 groups on ACSIncome, whatever K is.

![The silhouette of every number of groups](silhouettes.svg)

![The median number of groups by the number of clients](number_of_groups.svg)

{groups}

## CAFA's IID clients (Tables II and III)

K-means on label shares, the number of clusters by silhouette; who is in the largest cluster is called IID.
Partition: `partly_iid`, in which the others have 2 to 4 of 10 classes. Means over seeds 0 to 4.

{iid}
"""


if __name__ == "__main__":
    main()
