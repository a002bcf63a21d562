"""Groups of clients whose images look different: clean, noisy, blurred (FedGWC, ICML 2025).

Labels are nearly IID, so what tells the groups apart is the look of the images. Neither the noise level nor
the blur radius was published: the defaults are ours.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedcohort.data.partition import Domain, Partition, Partitioner, register
from fedcohort.data.partition.dirichlet_clientwise import deal_clientwise
from fedcohort.data.partition.mixed_alpha import Share, assign_groups
from fedcohort.util.settings import at_least


@register
@dataclass(frozen=True)
class Domains(Partitioner):
    """``clean``, ``noise`` and ``blur`` are the shares of the clients; truth is the domain's number."""

    drops: ClassVar[bool] = True

    clients: Annotated[int, at_least(1)] = 100
    clean: Share = 0.4
    noise: Share = 0.3
    blur: Share = 0.3
    alpha: Annotated[float, at_least(0)] = 100.0  # total mass, as in dirichlet_clientwise
    sigma: Annotated[float, at_least(0)] = 0.5  # of the noise, in units of the normalised images
    radius: Annotated[float, at_least(0)] = 2.0  # of the blur, in pixels

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        rng = self.generator(seed)
        looks = (Domain("clean"), Domain("noise", noise=self.sigma), Domain("blur", blur=self.radius))
        group = assign_groups((self.clean, self.noise, self.blur), self.clients, rng)
        domains = tuple(looks[g] for g in group)
        owners = deal_clientwise(labels, np.full(self.clients, self.alpha), rng)
        story = {"domains": dict(Counter(domain.name for domain in domains))}
        return Partition(owners, truth=group, domains=domains, provenance=story)
