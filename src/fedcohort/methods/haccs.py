"""HACCS: Wolfrath et al., "HACCS: Heterogeneity-Aware Clustered Client Selection for Accelerated Federated
Learning", IPDPS 2022.

A simulation has no clock, so latency is made up: every client gets one of four speeds, and takes its local
steps and the transfer of the model at that speed.

Equation:
    theta_i = rho (1 - latency_i / max_j latency_j)     (Eq. 6-7; means of
            + (1 - rho) loss_i / sum_j loss_j            cluster i)
    draw clusters by theta, and of each the quickest client that is left

Where we differ:
    - Clients that OPTICS calls noise are clusters of their own, as in the authors' code.
    - Clusters are drawn one at a time and one that is used up is drawn no more; Algorithm 1 draws them all
      first, and may hit an empty one. The code gives each cluster the whole part of its share first
      (``quasi_random=True``).
    - A label that only one of two clients holds sets them 1 apart, one that neither holds is left out.
    - The 20 bins of P(X|y) are quantiles of a standard normal; the code cuts [0, 1] evenly, but our features
      are standardised.
    - Before any loss is known all clusters count as equally bad.
"""

from dataclasses import dataclass
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
    at_least,
    between,
    client_space,
    label_histograms,
    latencies,
    optics_groups,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class HACCS(Selector, Polls, Summarises):
    """Clusters clients by their data, draws clusters that are quick or badly served, and trains the quickest
    clients of each."""

    rho: Annotated[float, between(0, 1), tune(0, 1)] = 0.5  # 1: quick clusters only; 0: high losses only
    summary: Literal["P(y)", "P(X|y)"] = "P(y)"  # clients compared by labels, or by features of each label
    min_samples: Annotated[int, at_least(2)] = 2  # OPTICS: neighbours that make a core client
    latency: Literal["speeds", "equal"] = "speeds"  # four classes of clients drawn by the seed, or all alike
    transfer: Annotated[float, at_least(0)] = 1.0  # time to send the model both ways, in local steps
    loss_source: Literal["poll", "last_seen"] = "poll"  # of everybody each round, or of the last training
    quasi_random: bool = False  # first give each cluster the whole part of its share, as the authors' code

    def uses(self) -> frozenset[str]:
        data = "counts" if self.summary == "P(y)" else "summary"
        return frozenset({data, "losses" if self.loss_source == "poll" else "loss"})

    def server_bytes(self, profile: Profile) -> int:
        """Distances of all clients, and what they are made of."""
        return 5 * 8 * profile.num_clients**2 if self.summary == "P(X|y)" else 0

    def summarise(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return label_histograms(x, y, num_classes)

    def init_selector(self, profile: Profile) -> Memory:
        table, known = profile.known_table(self.name, self.summary == "P(y)")
        cluster = np.arange(len(table)) + len(table)  # nothing known: alone
        cluster[known] = self.cluster(table[known])
        never = torch.full((profile.num_clients,), torch.nan)
        latency = latencies(profile, self.transfer, varied=self.latency == "speeds")
        return {"cluster": torch.from_numpy(cluster), "latency": latency, "loss": never}

    def cluster(self, table: np.ndarray) -> np.ndarray:
        """The cluster of each client, from label counts or from what clients summarised."""
        space, metric = client_space(table)
        return optics_groups(space, self.min_samples, metric=metric)

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        return now.members if self.loss_source == "poll" else None

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        loss = memory["loss"] if losses is None else losses
        quickest = now.members[memory["latency"][now.members].argsort(stable=True)]
        cluster, size = memory["cluster"][quickest].unique(return_inverse=True, return_counts=True)[1:]
        known = ~loss[quickest].isnan()
        odds = self.odds(
            cluster_means(memory["latency"][quickest], cluster, len(size)),
            cluster_means(loss[quickest][known], cluster[known], len(size)),
        )
        drawn, next_of = self.draw(size, odds, now.cohort, now.generator("select")), size.cumsum(0) - size
        places = []
        for which in drawn:
            places.append(int(next_of[which]))
            next_of[which] += 1
        return quickest[cluster.argsort(stable=True)[places]]

    def odds(self, latency: Tensor, loss: Tensor) -> Tensor:
        """theta of each cluster, from its mean latency and loss; an unknown loss is an average one."""
        even = torch.full_like(latency, 1 / len(latency))
        quick = 1 - latency / latency.max() if latency.max() > 0 else torch.zeros_like(latency)
        loss = torch.where(loss.isnan(), loss.nanmean(), loss)
        bad = loss / loss.sum() if loss.sum() > 0 else even  # also when no loss is known yet
        theta = self.rho * quick + (1 - self.rho) * bad
        return theta if theta.sum() > 0 else even

    def draw(self, size: Tensor, odds: Tensor, cohort: int, key: torch.Generator) -> list[int]:
        """Clusters drawn by ``odds``, none more often than its ``size``."""
        left, drawn = size.clone(), []
        if self.quasi_random:
            certain = (cohort * odds / odds.sum() + 1e-9).long().minimum(left)
            drawn, left = torch.arange(len(size)).repeat_interleave(certain).tolist(), left - certain
        while len(drawn) < cohort and left.any():
            open_odds = odds * (left > 0)
            weights = open_odds if open_odds.sum() > 0 else (left > 0).double()
            # One that is used up before its turn is passed over: the next is as likely as among the others.
            for which in torch.multinomial(weights, cohort - len(drawn), True, generator=key).tolist():
                if left[which] > 0:
                    left[which] -= 1
                    drawn.append(which)
        return drawn

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        if self.loss_source == "poll" or not len(updates):
            return memory
        return {**memory, "loss": updates.with_losses(memory["loss"])}


def cluster_means(values: Tensor, cluster: Tensor, count: int) -> Tensor:
    """[count]: the mean of each cluster's values, NaN where there is none."""
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, cluster, values.double())
    return total / torch.bincount(cluster, minlength=count)
