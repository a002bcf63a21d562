"""FedGWC: the authors' server, over two splits.

Put around it: clients that answer with losses from a script, of which every third has larger ones; those
train who come first in an order that is drawn for each round. Where their server draws losses of its own, it
is given what ours drew.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crosschecks.authors.clone import Clone
from crosschecks.ours import history, scripted
from crosschecks.problem import Arrays, Moves
from crosschecks.rows import Row, compared
from fedcohort.core.method import Method
from fedcohort.core.records import Ids, Memory, Round
from fedcohort.core.roles import Selector
from fedcohort.stats.clustering import stretched_alike
from fedcohort.stats.gaussian import typical_shares
from fedcohort.util.keyed import generator, numpy_generator

REPOSITORY = "davedleo/FedGWC"
CLIENTS, COHORT, STEPS, ROUNDS = 24, 6, 5, 300
BETA, TOLERANCE, PADDING = 4.0, 5e-4, 10


def theirs(problem: Arrays, clone: Path) -> Arrays:
    from agents import servers

    losses, sizes = torch.from_numpy(problem["losses"]), problem["sizes"].tolist()
    clients = {number: Client(losses[:, number], sizes[number]) for number in range(CLIENTS)}
    options: dict[str, Any] = {"num_local_iters": STEPS, "gamma": BETA, "eps": TOLERANCE, "device": "cpu"}
    server = servers.ServerFedGWC(nn.Linear(1, 1), clients, COHORT, loss_sampling_size=0, **options)
    groups, tables = [], []
    for number, order in enumerate(problem["orders"]):
        for client in clients.values():
            client.round = number

        def first(cluster: str, order: np.ndarray = order) -> list[int]:
            return [k for k in order.tolist() if k in server._clusters_clients_ids[cluster]][:COHORT]

        server._select_clients = first
        server.train(1)
        groups.append(np.zeros(CLIENTS, dtype=int))
        tables.append(np.zeros((CLIENTS, CLIENTS)))
        for name, cluster in enumerate(server._clusters):
            own = server._clusters_clients_ids[cluster]
            groups[-1][own], tables[-1][np.ix_(own, own)] = name, server._clusters_W[cluster]
    alike = server._compute_P("0")  # of the first group's matrix, which is kept as it was when it split
    server._loss_sampling_size = COHORT + PADDING
    said = {k: {"loss": losses[0, k], "num_samples": sizes[k]} for k in range(COHORT)}
    server._current_updates = {"clients_updates": said, "tot_num_samples": sum(sizes[:COHORT])}
    servers.torch.normal = lambda *_, size: torch.from_numpy(problem["draws"])
    rewards, total = server._get_gaussian_rewards()
    shares = np.array([rewards[k] for k in range(COHORT)]) / total
    return {"groups": np.stack(groups), "tables": np.stack(tables), "alike": alike, "rewards": shares}


class Client:
    """A client that says what the script has for it."""

    def __init__(self, losses: Tensor, size: int) -> None:
        self.losses, self.size, self.round = losses, size, 0

    def get_num_samples(self) -> int:
        return self.size

    def load_update(self, model: nn.Module) -> None:
        self.model = model

    def get_update(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def train(self, steps: int) -> Tensor:
        return self.losses[self.round]


@dataclass(frozen=True)
class InOrder(Selector):
    """Chooses the first members in each round's order."""

    orders: Tensor  # [rounds, K]

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        order = self.orders[now.number]
        return order[torch.isin(order, now.members)][: now.cohort]


def rows(clone: Clone) -> list[Row]:
    random = numpy_generator(0, "crosschecks", "fedgwc")
    sizes = random.integers(20, 60, CLIENTS)
    orders = np.stack([random.permutation(CLIENTS) for _ in range(ROUNDS)])
    usual = np.where(np.arange(CLIENTS) % 3 < 2, 2, 3)[:, None] - np.linspace(0, 0.5, STEPS)
    losses = (usual + random.normal(0, 0.15, (ROUNDS, CLIENTS, STEPS))).astype(np.float32)
    draws = torch.randn(PADDING, STEPS, generator=generator(0, "draws"))
    answer = clone.ask({"losses": losses, "sizes": sizes, "orders": orders, "draws": draws.numpy()})

    still = np.zeros((ROUNDS, CLIENTS, 1), dtype=np.float32)
    engine = scripted(Moves(still, losses, sizes, still[0, 0]), COHORT)
    paper = f"fedgwc(beta={BETA:g}, tolerance={TOLERANCE})"
    code = f"{paper[:-1]}, reading='code')"

    def learnt(method: str) -> tuple[np.ndarray, np.ndarray]:
        parts = replace(Method.parse(method), selector=InOrder(torch.from_numpy(orders)))
        memories = [state.grouping for state in history(parts, engine, ROUNDS)[1:]]
        return tuple(np.stack([own[key].numpy() for own in memories]) for key in ("group", "interaction"))

    group, table = learnt(code)
    learning = np.stack([(own[:, None] == own) & (np.bincount(own)[own] > COHORT) for own in group])
    first = int((group.max(axis=1) == 0).sum())  # the round of the first split
    said, share = losses[0, :COHORT], sizes[:COHORT] / sizes[:COHORT].sum()
    rewards = typical_shares(*map(torch.from_numpy, (said, share)), PADDING, generator(0, "draws"))
    alike = stretched_alike(table[first].T, BETA)
    together, joined = (own[:, :, None] == own[:, None] for own in (group, answer["groups"]))
    file = "agents/servers.py"
    text = clone.reason(
        "The paper weighs clients alike and takes the sample variance; the code weighs by samples, {}, {}, "
        "divides rewards by their sum, {}, starts the matrix at 1 / K^2, {}, and learns with the cohort's "
        "share of the group, {}. `reading='code'` does all that; the default is the paper's.",
        (file, "mu += update['loss'] * update['num_samples'] / tot_num_samples"),
        (file, "sigma2 += clients_updates[client_id]['num_samples']"),
        (file, "w_new = alpha_new * r / R_sum"),
        (file, "self._clusters_W = {'0': np.ones("),
        (file, "alpha_new = self._num_clients_per_round /"),
    )
    ours, padded, server = f"`{code}`", f"`{code[:-1]}, padding={PADDING})`", "ServerFedGWC"
    before = (f"`{paper}`", learnt(paper)[1][:first]), (server, answer["tables"][:first])
    return [
        compared("FedGWC, rewards, ten drawn", (padded, rewards), (server, answer["rewards"])),
        compared("FedGWC, matrix", (ours, table[learning]), (server, answer["tables"][learning])),
        compared("FedGWC, affinity", (ours, alike), (server, answer["alike"])),
        compared("FedGWC, groups, round by round", (ours, together), (server, joined)),
        compared("FedGWC, matrix, as the paper", *before, text),
    ]
