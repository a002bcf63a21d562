"""FedEntropy: Ling et al., "FedEntropy: Efficient Device Grouping for Federated Learning Using Maximum
Entropy Judgment", 2022. https://arxiv.org/abs/2205.12038

Equation:
    H(A) = entropy of sum_A n_k s_k / sum_A n_k,
           s_k: mean class probabilities of client k after training
    while some k has H(A - k) > H(A): remove the k of highest H(A - k)
    value of k: + 1 if kept, / 2 if removed
    next cohort: drawn by value with probability epsilon, else uniformly

Where we differ:
    Drawing by value is that of the authors' code; whether the paper's first stage is the same was not
    verified. ``epsilon=0`` draws uniformly, as do papers that compare with it.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedcohort.api import (
    EQUAL,
    Ids,
    Judges,
    Memory,
    Profile,
    Round,
    Selector,
    Updates,
    between,
    entropy,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FedEntropy(Selector, Judges):
    """After training, leaves out clients until what the cohort predicts together is as even as it can be."""

    heeds_odds: ClassVar[bool] = True

    epsilon: Annotated[float, between(0, 1), tune(0, 1)] = 0.8  # how often clients are drawn by value

    def uses(self) -> frozenset[str]:
        return frozenset({"outputs"})

    def init_selector(self, profile: Profile) -> Memory:
        return {"value": torch.ones(profile.num_clients, dtype=torch.float64)}

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        by_value = bool(torch.rand(1, generator=now.generator("coin")) < self.epsilon)
        return now.draw("select", memory["value"][now.members] if by_value else None)

    def judge(self, memory: Memory, now: Round, updates: Updates) -> Tensor:
        wanted = torch.ones(len(updates), dtype=torch.bool)
        outputs = updates.probes["outputs"].double() * updates.size[:, None]
        while wanted.sum() > 1:
            inside = wanted.nonzero().flatten()
            total = outputs[inside].sum(0)
            without = entropy(total - outputs[inside])
            if without.max() <= entropy(total) + EQUAL:
                break
            wanted[inside[(without >= without.max() - EQUAL).nonzero()[0]]] = False  # of equals the lowest
        return wanted

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        value = memory["value"].clone()
        value[updates.ids] += 1
        value[now.declined] /= 2
        return {"value": value}
