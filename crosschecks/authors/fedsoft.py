"""FedSoft: the authors' server and clients.

Put around it: plain gradient steps, because their Adam's memory lasts; a validator that keeps models; no log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor, nn

from crosschecks.authors.clone import Clone, attempt
from crosschecks.network import build, examples, first_network, flat
from crosschecks.ours import CLIENTS, all_models, history, make_kinds, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared
from fedcohort.core.method import Method
from fedcohort.core.records import Ids, Memory, Round
from fedcohort.core.roles import Selector
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.util.keyed import numpy_generator

REPOSITORY = "ycruan/FedSoft"
CENTRES, DRAWN, ROUNDS = 3, 2, 12
EVERY, STRENGTH, FLOOR = 2, 0.5, 0.05


def theirs(problem: Arrays, clone: Path) -> Arrays:
    import clients

    class Mended(clients.Client):
        def estimate_importance_weights(self, _: str) -> None:
            super().estimate_importance_weights()

    firsts, drawn = problem.pop("firsts"), problem.pop("drawn")
    given = Training(**problem)
    centres, personal = run(given, firsts, Mended)
    return {
        "published": attempt(lambda: run(given, firsts, clients.Client)[0]),
        "centres": centres,
        "personal": personal,
        "drawn": run(given, firsts, Mended, iter(drawn.reshape(-1, DRAWN)))[0],
    }


def run(
    given: Training, firsts: np.ndarray, client: Any, drawn: Iterator[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """``[rounds, centres, P]`` and ``[rounds, K, P]``; everybody trains if nobody is drawn."""
    import servers

    entropy, schedule = nn.CrossEntropyLoss, torch.optim.lr_scheduler.StepLR
    solver = SimpleNamespace(batch_size=len(given.y), optimizer_type=torch.optim.SGD, lr=LR)
    solver.lr_scheduler_type, solver.lr_step, solver.lr_gamma = schedule, 1, 1.0
    solver.local_epoch, solver.classification, solver.num_classes = int(given.steps[0]), True, 10
    solver.criterion, solver.estimate_criterion = entropy(), entropy(reduction="none")
    solver.reg_weight, solver.count_smoother = STRENGTH, FLOOR
    order = SimpleNamespace(do_selection=drawn is not None, selection_size=DRAWN, estimation_interval=EVERY)
    data = [torch.utils.data.TensorDataset(*examples(given, number)) for number in range(given.clients)]
    networks = (first_network(replace(given, init=first)) for first in firsts)
    centres, personal = [], []

    def keep(client_vec: Any, cluster_vec: Any, t: int) -> None:
        centres.append([flat(model).numpy() for model in cluster_vec])
        personal.append([flat(client.model).numpy() for client in client_vec])

    servers.logger, servers.np.random.choice = MagicMock(), lambda **_: next(drawn)
    there = [client(number, own, solver) for number, own in enumerate(data)]
    servers.Server(lambda: next(networks), there, CENTRES, SimpleNamespace(validate=keep), order).run(ROUNDS)
    return np.array(centres), np.array(personal)


@dataclass(frozen=True)
class ForCentres(Selector):
    """Chooses those who were drawn for each centre."""

    heeds_odds: ClassVar[bool] = True

    drawn: Tensor  # [rounds, centres, m]

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return self.drawn[now.number, now.group]


def rows(clone: Clone) -> list[Row]:
    problem, random = make_kinds(3, ROUNDS), numpy_generator(0, "crosschecks", "fedsoft")
    task = task_of(problem, lambda: build(64, 10))
    pairs = [random.choice(CLIENTS, DRAWN, replace=False) for _ in range(ROUNDS * CENTRES)]
    drawn = np.reshape(pairs, (ROUNDS, CENTRES, DRAWN))
    centres = [model.params for model in task.model.inits(task.seed, CENTRES)]
    firsts = np.stack([centres[0], *centres])  # of clients, and of centres
    answer = clone.ask({**vars(problem), "firsts": firsts, "drawn": drawn})

    paper = f"fedsoft(groups={CENTRES}, strength={STRENGTH}, floor={FLOOR})"
    code = f"{paper[:-1]}, zeros_only=True)"
    everybody, raised = (
        history(Method.parse(method), ReferenceEngine(task), ROUNDS)[1:] for method in (code, paper)
    )
    selector, few = ForCentres(torch.from_numpy(drawn)), replace(task, cohort=CENTRES * DRAWN)
    some = history(replace(Method.parse(code), selector=selector), ReferenceEngine(few), ROUNDS)[1:]
    mine = [[state.clients[client]["params"].numpy() for client in range(CLIENTS)] for state in everybody]
    argument = clone.reason(
        "The server hands over an argument, {}, that clients do not take, {}. *Mended*, they ignore it.",
        ("servers.py", "client.estimate_importance_weights('fedsoft')"),
        ("clients.py", "def estimate_importance_weights(self):"),
    )
    zeros = clone.reason(
        "The paper raises every importance to the floor, the code only those that are zero: {}. At the "
        "published floor of 1e-4 only a client with more than ten thousand samples could tell.",
        ("clients.py", "if nst_cluster_sample_count[s] == 0:"),
    )
    ours, found, start = f"`{code}`", np.stack(all_models(everybody)), firsts[1:]
    pair = (ours, np.stack(all_models(some))), ("mended", answer["drawn"])
    text = (f"`{paper}`", np.stack(all_models(raised))), ("mended", answer["centres"])
    return [
        compared("FedSoft", (ours, found), ("Server", answer["published"]), argument, start),
        compared("FedSoft, centres", (ours, found), ("mended", answer["centres"]), since=start),
        compared("FedSoft, clients", (ours, mine), ("mended", answer["personal"]), since=firsts[0]),
        compared("FedSoft, two drawn for each centre", *pair, since=start),
        compared("FedSoft, as the paper", *text, zeros, start),
    ]
