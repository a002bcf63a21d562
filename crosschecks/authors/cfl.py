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
from sklearn.cluster import AgglomerativeClustering

from crosschecks.authors.clone import Clone
from crosschecks.network import examples, first_network
from crosschecks.ours import make_kinds, served, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared

REPOSITORY = "felisat/clustered-federated-learning"
NOTEBOOK = "clustered_federated_learning.ipynb"
EPS1, EPS2, ROUNDS = 0.1, 0.2, 40
SHRINKS = 0.99  # their clients multiply the learning rate by it before each round
MISTAKE, MENDED = "cluster_indices_new += [c1, c2]", "cluster_indices_new += [idc[c1], idc[c2]]"


def theirs(problem: Arrays, clone: Path) -> Arrays:
    import fl_devices

    fl_devices.AgglomerativeClustering = lambda affinity, linkage: AgglomerativeClustering(
        metric=affinity, linkage=linkage
    )
    cells = ("".join(cell["source"]) for cell in json.loads((clone / NOTEBOOK).read_text())["cells"])
    (cell,) = (text for text in cells if MISTAKE in text)
    given = Training(**problem)
    mended = loop(cell.replace(MISTAKE, MENDED), fl_devices, given)
    return {"notebook": loop(cell, fl_devices, given), "mended": mended}


def loop(cell: str, devices: Any, given: Training) -> np.ndarray:
    """``[rounds, K, P]``: every client's model after each round of the cell's loop."""
    batches, clients, path = [examples(given, number) for number in range(given.clients)], [], []
    for number, batch in enumerate(batches):
        data = torch.utils.data.TensorDataset(*batch)
        client = devices.Client(lambda: first_network(given), lambda p: torch.optim.SGD(p, LR), data, number)
        client.train_loader, client.eval_loader = [batch] * int(given.steps[number]), [batch]
        clients.append(client)

    def log(values: dict[str, Any]) -> None:
        if "clusters" in values:  # the end of a round
            path.append(np.stack([devices.flatten(client.W).detach().numpy() for client in clients]))

    world = {
        "np": np,
        "clients": clients,
        "server": devices.Server(lambda: first_network(given), data),
        "cluster_indices": [np.arange(len(clients))],
        "cfl_stats": type("Log", (), {"log": staticmethod(log)}),
        "display_train_stats": lambda *_: None,
        "COMMUNICATION_ROUNDS": len(given.cohorts),
        "EPS_1": EPS1,
        "EPS_2": EPS2,
    }
    body = next(node for node in ast.parse(cell).body if isinstance(node, ast.For))
    exec(compile(ast.Module([body], []), NOTEBOOK, "exec"), world)
    return np.stack(path)


def rows(clone: Clone) -> list[Row]:
    problem = make_kinds(3, ROUNDS)
    answer = clone.ask(vars(problem))
    task = task_of(problem, lambda: first_network(problem), lr=LR * SHRINKS, decay=SHRINKS)
    paper = f"cfl(eps1={EPS1}, eps2={EPS2})"
    code = f"{paper[:-1]}, weighted=False, min_round=20)+fairavg"
    runs = {method: states(method, problem, task)[1:] for method in (paper, code)}
    early = sum(len(state.groups) < 3 for state in runs[code])

    def row(what: str, ours: str, theirs: str, reason: str = "", until: int = ROUNDS) -> Row:
        path = served(runs[ours][:until])
        return compared(what, (f"`{ours}`", path), (theirs, answer[theirs][:until]), reason, problem.init)

    places = clone.reason(
        "The group that splits is known by its clients, its halves by their places in the group, {}. At the "
        "first split these are the same; after the second some clients are in no group and others in two. "
        "*Mended* puts the clients.",
        (NOTEBOOK, MISTAKE),
    )
    weights = clone.reason(
        "The paper weighs updates by samples, in the mean whose norm decides and in the one that moves the "
        "model; the code weighs all alike, {}, {}, and splits nothing in the first twenty rounds, {}. The "
        "default is the paper's.",
        ("fl_devices.py", "torch.norm(torch.mean(torch.stack([flatten"),
        ("fl_devices.py", "tmp = torch.mean(torch.stack("),
        (NOTEBOOK, "c_round>20"),
    )
    return [
        row("CFL, until the second split", code, "notebook", until=early),
        row("CFL, all splits", code, "notebook", places),
        row("CFL, all splits", code, "mended"),
        row("CFL, as the paper", paper, "mended", weights),
    ]
