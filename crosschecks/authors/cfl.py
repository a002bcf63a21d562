"""CFL: the loop of the authors' notebook, with their clients and their server.

Put around it: scikit-learn has renamed an argument of its clustering since; "loaders" are a client's full
batch, once for each step; nothing is drawn on the screen.
"""

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosschecks.authors.clone import Clone
from crosschecks.network import examples, first_network
from crosschecks.ours import make_kinds, served, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared

REPOSITORY = "felisat/clustered-federated-learning"
NOTEBOOK = "clustered_federated_learning.ipynb"
EPS1, EPS2 = 0.1, 0.2
ROUNDS, SHRINKS = 40, 0.99  # their clients multiply the learning rate by it before each round


def theirs(problem: Arrays, clone: Path) -> Arrays:
    import fl_devices
    from sklearn.cluster import AgglomerativeClustering

    fl_devices.AgglomerativeClustering = lambda affinity, linkage: AgglomerativeClustering(
        metric=affinity, linkage=linkage
    )
    cells = json.loads((clone / NOTEBOOK).read_text())["cells"]
    (cell,) = ("".join(cell["source"]) for cell in cells if "COMMUNICATION_ROUNDS = " in "".join(cell["source"]))
    mended = cell.replace("[c1, c2]", "[idc[c1], idc[c2]]")
    return {"notebook": loop(cell, fl_devices, problem), "mended": loop(mended, fl_devices, problem)}


def loop(cell: str, devices: Any, problem: Arrays) -> np.ndarray:
    """``[rounds, K, P]``: every client's model after each round of the cell's loop."""
    body = next(node for node in ast.parse(cell).body if isinstance(node, ast.For))
    given = Training(**problem)
    clients = []
    for number in range(given.clients):
        batch = examples(given, number)
        data = torch.utils.data.TensorDataset(*batch)
        sgd = lambda params: torch.optim.SGD(params, LR)  # noqa: E731
        client = devices.Client(lambda: first_network(given), sgd, data, number, train_frac=1.0)
        client.train_loader, client.eval_loader = [batch] * int(given.steps[number]), [batch]
        clients.append(client)
    path: list[np.ndarray] = []

    class Log:
        def log(self, values: dict[str, Any]) -> None:
            if "clusters" in values:  # the end of a round
                path.append(np.stack([devices.flatten(c.W).detach().numpy() for c in clients]))

    world = {
        "np": np,
        "clients": clients,
        "server": devices.Server(lambda: first_network(given), data),
        "cluster_indices": [np.arange(len(clients))],
        "cfl_stats": Log(),
        "display_train_stats": lambda *_: None,
        "COMMUNICATION_ROUNDS": len(given.cohorts),
        "EPS_1": EPS1,
        "EPS_2": EPS2,
    }
    exec(compile(ast.Module([body], []), NOTEBOOK, "exec"), world)
    return np.stack(path)


def rows(clone: Clone) -> list[Row]:
    problem = make_kinds(3, ROUNDS)
    answer = clone.ask(vars(problem))
    task = task_of(problem, lambda: first_network(problem), lr=LR * SHRINKS, decay=SHRINKS)
    paper = f"cfl(eps1={EPS1}, eps2={EPS2})"
    code = f"{paper[:-1]}, weighted=False, min_round=20)+fairavg"
    after = states(code, problem, task)[1:]
    path, early = served(after), sum(len(state.groups) < 3 for state in after)
    lost = clone.reason(
        "A group that is split is known by its clients, its halves by their places in the group, {}: correct "
        "only for the first split, in which they are the same. After the second, some clients are in no "
        "group and others in two. *Mended* puts the clients.",
        (NOTEBOOK, "cluster_indices_new += [c1, c2]"),
    )
    paper_reason = clone.reason(
        "The paper weighs updates by samples, in the mean whose norm decides and in the one that moves the "
        "model, and splits whenever the norms say so; the code weighs all alike, {}, {}, and waits for "
        "twenty rounds, {}.",
        ("fl_devices.py", "torch.norm(torch.mean(torch.stack([flatten"),
        ("fl_devices.py", "tmp = torch.mean(torch.stack("),
        (NOTEBOOK, "c_round>20"),
    )
    ours, start = f"`{code}`", problem.init
    return [
        compared(
            "CFL, until the second split",
            (ours, path[:early]),
            ("notebook", answer["notebook"][:early]),
            since=start,
        ),
        compared("CFL, five splits", (ours, path), ("notebook", answer["notebook"]), lost, start),
        compared("CFL, five splits", (ours, path), ("notebook, mended", answer["mended"]), since=start),
        compared(
            "CFL, as the paper",
            (f"`{paper}`", served(states(paper, problem, task)[1:])),
            ("notebook, mended", answer["mended"]),
            paper_reason,
            start,
        ),
    ]
