"""HACCS: Wolfrath et al., "HACCS: Heterogeneity-Aware Clustered Client Selection for Accelerated Federated
Learning", IPDPS 2022.

Where the paper leaves a choice: clients that OPTICS calls noise are clusters of their own; clusters are drawn
one at a time, and one that is used up is drawn no more; a label that only one of two clients holds sets them
1 apart, one that neither holds is left out. A simulation has no clock, so latency is made up: every client
gets one of four speeds, and takes its local steps and the transfer of the model at that speed.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.cluster import optics_groups
from fedcohort.core.keyed import generator
from fedcohort.core.method import register
from fedcohort.core.parts import Ids, Memory, Round, Selector, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.settings import at_least, between
from fedcohort.diagnosis.distances import hellinger_matrix, hellinger_points
from fedcohort.errors import UserError

SPEEDS = ((0.60, 1.0), (0.20, 2.0), (0.15, 4.0), (0.05, 8.0))  # share of clients, time for the same work
BINS = 20  # of a feature between 0 and 1; values beyond fall into the first and last


@register
@dataclass(frozen=True)
class HACCS(Selector):
    """Clusters clients by their data, draws clusters that are quick or badly served, and trains the quickest
    clients of each."""

    rho: Annotated[float, between(0, 1)] = 0.5  # 1: quick clusters only; 0: clusters of high loss only
    summary: Literal["P(y)", "P(X|y)"] = "P(y)"  # clients compared by labels, or by features of each label
    min_samples: Annotated[int, at_least(2)] = 2  # OPTICS: neighbours that make a core client
    latency: Literal["speeds", "equal"] = "speeds"  # four classes of clients drawn by the seed, or all alike
    transfer: Annotated[float, at_least(0)] = 1.0  # time to send the model both ways, in local steps
    loss_source: Literal["poll", "last_seen"] = "poll"  # of everybody each round, or of the last training
    quasi_random: bool = False  # first give each cluster the whole part of its share, as the authors' code

    def uses(self) -> frozenset[str]:
        data = "counts" if self.summary == "P(y)" else "summary"
        return frozenset({data, "losses" if self.loss_source == "poll" else "loss"})

    def summarise(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """[C, bins]: of each label, where the features lie; the features of an example weigh 1 together."""
        features = x.flatten(1)
        cell = (features * BINS).long().clamp(0, BINS - 1) + BINS * y[:, None]
        total = torch.bincount(cell.flatten(), minlength=num_classes * BINS)
        return total.view(num_classes, BINS).double() / max(1, features.shape[1])

    def init_selector(self, profile: Profile) -> Memory:
        table = self._known_table(profile)
        known = np.flatnonzero((table.flatten(1).sum(1) > 0).numpy() & (profile.size.numpy() > 0))
        cluster = np.arange(len(table)) + len(table)  # nothing known: alone
        cluster[known] = self.cluster(table[known].numpy())
        never = torch.full((profile.num_clients,), torch.nan)
        return {"cluster": torch.from_numpy(cluster), "latency": self.latencies(profile), "loss": never}

    def _known_table(self, profile: Profile) -> Tensor:
        if self.summary == "P(y)":
            return profile.known_counts(self.name)
        if profile.summary is None:
            raise UserError(
                f"{self.name} needs a summary of each client's data, but privacy.counts is 'withheld': "
                "set it to 'exact' or 'noised', or choose a method that needs none"
            )
        return profile.summary

    def cluster(self, table: np.ndarray) -> np.ndarray:
        """The cluster of each client, from label counts or from what clients summarised."""
        if self.summary == "P(y)":
            return optics_groups(hellinger_points(table), self.min_samples)
        return optics_groups(summary_distances(table), self.min_samples, metric="precomputed")

    def latencies(self, profile: Profile) -> Tensor:
        """[N]: time of a round at each client, in local steps of a quick one."""
        steps = torch.tensor([profile.local.steps_for(size) for size in profile.size.tolist()]).double()
        slow = torch.ones(len(steps), dtype=torch.float64)
        if self.latency == "speeds":
            share, time = torch.tensor(SPEEDS, dtype=torch.float64).t()
            rank = torch.randperm(len(steps), generator=generator(profile.seed, "latency"))
            last = (share.cumsum(0)[:-1] * len(steps)).round().long()
            slow = time[torch.bucketize(rank, last, right=True)]
        return slow * (steps + self.transfer)

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        return now.members if self.loss_source == "poll" else None

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        loss = memory["loss"] if losses is None else losses
        quickest = memory["latency"][now.members].argsort(stable=True)
        clusters: dict[int, list[int]] = {}
        for client in now.members[quickest].tolist():
            clusters.setdefault(int(memory["cluster"][client]), []).append(client)
        queues = [clusters[name] for name in sorted(clusters)]
        odds = self.odds(
            torch.stack([memory["latency"][queue].mean() for queue in queues]),
            torch.stack([loss[queue].double().nanmean() for queue in queues]),
        )
        return torch.tensor(self.draw(queues, odds, now.cohort, now.generator("select")), dtype=torch.long)

    def odds(self, latency: Tensor, loss: Tensor) -> Tensor:
        """theta of each cluster, from its mean latency and loss; an unknown loss is an average one."""
        even = torch.full_like(latency, 1 / len(latency))
        quick = 1 - latency / latency.max() if latency.max() > 0 else torch.zeros_like(latency)
        loss = torch.where(loss.isnan(), loss.nanmean(), loss)
        bad = loss / loss.sum() if loss.sum() > 0 else even  # also when no loss is known yet
        theta = self.rho * quick + (1 - self.rho) * bad
        return theta if theta.sum() > 0 else even

    def draw(self, queues: list[list[int]], odds: Tensor, cohort: int, key: torch.Generator) -> list[int]:
        """Clients of clusters drawn by ``odds``, each time the quickest one left."""
        queues, odds, chosen = [list(queue) for queue in queues], odds.clone(), []
        if self.quasi_random:
            for queue, share in zip(queues, (cohort * odds / odds.sum()).tolist(), strict=True):
                chosen += [queue.pop(0) for _ in range(min(len(queue), int(share + 1e-9)))]
        while len(chosen) < cohort and any(queues):
            odds[[not queue for queue in queues]] = 0
            left = odds if odds.sum() > 0 else torch.tensor([float(bool(queue)) for queue in queues])
            chosen.append(queues[int(torch.multinomial(left, 1, generator=key))].pop(0))
        return chosen

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        if self.loss_source == "poll" or not len(updates):
            return memory
        loss = memory["loss"].clone()
        loss[updates.ids] = updates.trace.nanmean(1)
        return {**memory, "loss": loss}


def summary_distances(table: np.ndarray) -> np.ndarray:
    """[N, N]: mean Hellinger distance over the labels that at least one of two clients holds.

    ``table`` is ``[N, C, bins]``.
    """
    total = np.zeros((len(table), len(table)))
    shared = np.zeros_like(total)
    for label in range(table.shape[1]):
        mass = table[:, label].sum(1)
        share = table[:, label] / np.maximum(mass, np.finfo(float).tiny)[:, None]
        held = mass > 0
        both, either = np.outer(held, held), held[:, None] | held[None]
        total += np.where(both, hellinger_matrix(share), either)
        shared += either
    return total / np.maximum(shared, 1)
