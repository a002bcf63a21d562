"""FedLECC: Jimenez-Gutierrez et al., "FedLECC: Cluster- and Loss-Guided Client Selection for Federated
Learning under Non-IID Data".

Equation:
    clusters: OPTICS on H(k, j) = ||sqrt(q_k) - sqrt(q_j)||_2 / sqrt(2),
              q_kc = n_kc / n_k
    of the J clusters of highest mean F_k(x), the z = ceil(m / J) clients of
    highest F_k(x) each, until m; if too few, clients of the next clusters

Where we differ:
    - The loss is that of the current model on every client's training data, as Algorithm 1 polls it; Eq. 1
      and Section IV-C have that of local training. ``loss_source="last_seen"`` takes each client's last one,
      or infinity before there is any. That sends a fifth of the bytes and, with several local epochs, chose
      better clients in our runs (docs/replications-fedlecc.md).
    - J z may exceed m: the walk over clusters stops at the cohort size (``quota="balanced"`` shares it out).
    - Neither J nor the settings of OPTICS are stated: as many clusters as clients are asked, neighbourhoods
      of two, and clients that OPTICS calls noise are clusters of their own (``noise="drop"`` never trains
      them, unless there is nobody else).
    - Clients may be compared by the features of each label, too (``summary="P(X|y)"``), which Section IV-A
      found worse; how is not stated, here by HACCS's histograms.
    - For an ablation ``guide`` leaves out one half: "clusters" draws J clusters, and z clients of each, at
      random; "losses" asks for no labels and takes the highest losses of all.
    - Histograms are told once. The paper has them told again when a client's data change; here data never do
      during a run, and ``fedcohort drift`` compares counts of before and after.
    - ``clusters_per_round="auto"`` is ours: the paper leaves choosing J open. Losses say who trains, J how
      many kinds of clients do; so every round takes the J whose cohort's labels together are nearest, in
      Hellinger distance, to those of all clients. docs/fedlecc-auto-j.md compares it with fixed J.
"""

from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import (
    Ids,
    Memory,
    Polls,
    Profile,
    Round,
    Selector,
    Summarises,
    Updates,
    above,
    at_least,
    below,
    by_mean,
    client_space,
    dbscan_groups,
    has_company,
    hellinger_to_pool,
    kmedoids_groups,
    label_histograms,
    optics_groups,
    register,
)

Top = Annotated[int, at_least(1)] | Literal["auto"] | None


@register
@dataclass(frozen=True)
class FedLECC(Selector, Polls, Summarises):
    """Clusters clients by label distribution; trains the worst-off clients of the worst-off clusters."""

    clusters_per_round: Top = None  # J; None: all, or one per client asked; "auto": chosen by labels
    clustering: Literal["optics", "dbscan", "kmedoids"] = "optics"  # of the Hellinger distances
    min_samples: Annotated[int, at_least(2)] = 2  # OPTICS, DBSCAN: neighbours that make a core client
    xi: Annotated[float, at_least(0), below(1)] = 0.05  # OPTICS: steepness that ends a cluster
    noise: Literal["alone", "drop"] = "alone"  # clients in no cluster: each is one, or they do not train
    radius: Annotated[float, above(0)] = 0.2  # DBSCAN: Hellinger distance of neighbours
    medoids: Annotated[int, at_least(1)] = 10  # k-medoids: number of clusters
    quota: Literal["fill", "balanced"] = "fill"  # ceil(m/J) a cluster until m, or equal shares for all J
    loss_source: Literal["poll", "last_seen"] = "poll"  # of everybody each round, or of the last training
    summary: Literal["P(y)", "P(X|y)"] = "P(y)"  # clients compared by labels, or by features of each label
    guide: Literal["both", "clusters", "losses"] = "both"  # what chooses; one alone for an ablation

    def uses(self) -> frozenset[str]:
        labels = "counts" if self.summary == "P(y)" else "summary"
        losses = "losses" if self.loss_source == "poll" else "loss"
        asks = {"both": {labels, losses}, "clusters": {labels}, "losses": {losses}}[self.guide]
        return frozenset(asks | ({"counts"} if self.clusters_per_round == "auto" else set()))

    def server_bytes(self, profile: Profile) -> int:
        """Of distances between all, and what they are made of, unless OPTICS or DBSCAN go by labels."""
        pairs = self.guide != "losses" and (self.clustering == "kmedoids" or self.summary != "P(y)")
        return 5 * 8 * profile.num_clients**2 if pairs else 0

    def summarise(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return label_histograms(x, y, num_classes)

    def init_selector(self, profile: Profile) -> Memory:
        clients, never = profile.num_clients, torch.full((profile.num_clients,), torch.inf)
        if self.guide == "losses":
            return {"cluster": torch.zeros(clients, dtype=torch.long), "loss": never}
        table, known = profile.known_table(self.name, self.summary == "P(y)")
        cluster = np.arange(clients) + clients  # nothing known: alone
        cluster[known] = self._cluster(table[known])
        return {"cluster": torch.from_numpy(cluster), "loss": never}

    def _cluster(self, table: np.ndarray) -> np.ndarray:
        space, metric = client_space(table, points=self.clustering != "kmedoids")
        if self.clustering == "optics":
            return optics_groups(space, self.min_samples, self.xi, metric)
        if self.clustering == "dbscan":
            return dbscan_groups(space, self.radius, self.min_samples, metric)
        return kmedoids_groups(space, self.medoids)

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        return now.members if "losses" in self.uses() else None

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        loss, key = (memory["loss"] if losses is None else losses).double(), now.generator("select")
        # Equal losses go to the lowest number; of those never seen one is drawn, or low numbers would win.
        tie = torch.arange(len(loss)) if losses is not None else torch.randperm(len(loss), generator=key)
        if self.guide == "clusters":  # any cluster, and any of its clients, may be first
            own = memory["cluster"].unique(return_inverse=True)[1]
            loss = torch.randperm(len(loss), generator=key)[own].double()
        members = now.members[~loss[now.members].isnan()]
        if self.noise == "drop":
            members = members[torch.from_numpy(has_company(memory["cluster"][members].numpy()))]
        members = members[np.lexsort((tie[members], -loss[members].round(decimals=12)))]
        own, most = memory["cluster"][members].numpy(), 2 * now.cohort  # the top ones, and as many to fill up
        clusters = by_mean(own, loss[members].numpy(), tie[members].numpy(), most)
        if self.clusters_per_round == "auto":
            counts = now.profile.known_counts(self.name)[members].numpy()
            return members[self.pick_alike(clusters, now.cohort, counts)]
        return members[self.pick(clusters, now.cohort, self.clusters_per_round)]

    def pick_alike(self, ranked: list[list[int]], cohort: int, counts: np.ndarray) -> list[int]:
        """The pick, over all J, whose labels are nearest to those of all; of equals that of the largest J."""
        picks = [self.pick(ranked, cohort, top) for top in range(min(cohort, len(ranked)), 0, -1)]
        if not picks:
            return []
        together = np.stack([counts[pick].sum(0) for pick in picks])
        return picks[int(np.nan_to_num(hellinger_to_pool(together, counts), nan=1.0).round(12).argmin())]

    def pick(self, ranked: list[list[int]], cohort: int, top: int | None) -> list[int]:
        """``cohort`` clients from clusters ranked worst first, each with its worst client first."""
        top = min(top or cohort, cohort, len(ranked))
        if not top:
            return []
        even = [cohort // top + (position < cohort % top) for position in range(top)]
        quotas = even if self.quota == "balanced" else [-(-cohort // top)] * top
        chosen = [c for cluster, quota in zip(ranked, quotas, strict=False) for c in cluster[:quota]]
        rest = (c for cluster in ranked[top:] for c in cluster)
        left = (c for cluster, quota in zip(ranked, quotas, strict=False) for c in cluster[quota:])
        return list(islice(chain(chosen, rest, left), cohort))

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        if "loss" not in self.uses() or not len(updates):
            return memory
        return {**memory, "loss": updates.with_losses(memory["loss"])}
