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

from crosschecks.authors.clone import Clone
from crosschecks.network import build, examples, first_network, flat
from crosschecks.ours import all_models, history, make_kinds, task_of
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
    try:
        error = str(run(given, firsts, clients.Client))
    except TypeError as raised:
        error = f"TypeError: {raised}"
    centres, personal = run(given, firsts, Mended)
    some, _ = run(given, firsts, Mended, iter(drawn.reshape(-1, DRAWN)))
    return {"published": np.array([error]), "centres": centres, "personal": personal, "drawn": some}


def run(
    given: Training, firsts: np.ndarray, client: Any, drawn: Iterator[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """``[rounds, centres, P]`` and ``[rounds, K, P]``; everybody trains if nobody is drawn."""
    import servers

    entropy, sgd, schedule = nn.CrossEntropyLoss, torch.optim.SGD, torch.optim.lr_scheduler.StepLR
    solver = SimpleNamespace(batch_size=len(given.y), optimizer_type=sgd, lr=LR, lr_scheduler_type=schedule)
    solver.lr_step, solver.lr_gamma, solver.local_epoch = 1, 1.0, int(given.steps[0])
    solver.classification, solver.num_classes = True, 10
    solver.criterion, solver.estimate_criterion = entropy(), entropy(reduction="none")
    solver.reg_weight, solver.count_smoother = STRENGTH, FLOOR
    order = SimpleNamespace(do_selection=drawn is not None, selection_size=DRAWN, estimation_interval=EVERY)
    data = [torch.utils.data.TensorDataset(*examples(given, number)) for number in range(given.clients)]
    networks = (first_network(replace(given, init=first)) for first in firsts)
    path: list[tuple[list[np.ndarray], list[np.ndarray]]] = []

    def keep(client_vec: Any, cluster_vec: Any, t: int) -> None:
        path.append(tuple([flat(each).numpy() for each in some] for some in (cluster_vec, [c.model for c in client_vec])))

    servers.logger, servers.np.random.choice = MagicMock(), lambda **_: next(drawn)
    there = [client(number, own, solver) for number, own in enumerate(data)]
    servers.Server(lambda: next(networks), there, CENTRES, SimpleNamespace(validate=keep), order).run(ROUNDS)
    centres, personal = zip(*path, strict=True)
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
    drawn = np.array([[random.choice(10, DRAWN, replace=False) for _ in range(CENTRES)] for _ in range(ROUNDS)])
    own, centres = task.model.init(task.seed), task.model.inits(task.seed, CENTRES)
    firsts = np.stack([first.params for first in (own, *centres)])  # the clients' model, and the centres
    answer = clone.ask({**vars(problem), "firsts": firsts, "drawn": drawn})

    paper = f"fedsoft(groups={CENTRES}, strength={STRENGTH}, floor={FLOOR})"
    code = f"{paper[:-1]}, zeros_only=True)"
    some = replace(Method.parse(code), selector=ForCentres(torch.from_numpy(drawn))), replace(task, cohort=CENTRES * DRAWN)
    everybody, selected, raised = (
        history(method, ReferenceEngine(job), ROUNDS)[1:]
        for method, job in ((Method.parse(code), task), some, (Method.parse(paper), task))
    )
    mine = np.stack([[state.clients[k]["params"].numpy() for k in range(10)] for state in everybody])
    given = clone.reason(
        "The server gives an argument, {}, that clients do not take, {}. *Mended*, they ignore it.",
        ("servers.py", "client.estimate_importance_weights('fedsoft')"),
        ("clients.py", "def estimate_importance_weights(self):"),
    )
    zeros = clone.reason(
        "The paper raises every importance to the floor, the code only those that are zero: {}. Here the floor "
        f"is {FLOOR}; at the published 1e-4 only a client with more than ten thousand samples could show it.",
        ("clients.py", "if nst_cluster_sample_count[s] == 0:"),
    )
    return [
        compared("FedSoft", (f"`{code}`", np.stack(all_models(everybody))), ("Server", answer["published"]), given, firsts[1:]),
        compared("FedSoft, centres", (f"`{code}`", np.stack(all_models(everybody))), ("Server, mended", answer["centres"]), "", firsts[1:]),
        compared("FedSoft, clients' own models", (f"`{code}`", mine), ("Server, mended", answer["personal"]), "", firsts[0]),
        compared("FedSoft, two drawn for each centre", (f"`{code}`", np.stack(all_models(selected))), ("Server, mended", answer["drawn"]), "", firsts[1:]),
        compared("FedSoft, as the paper", (f"`{paper}`", np.stack(all_models(raised))), ("Server, mended", answer["centres"]), zeros, firsts[1:]),
    ]
