"""FedConcat: the branch of the authors' program that is this method, and what its -ID variant infers.

Put around it: examples and network are ours (with the 84 features that the program takes for granted);
K-means makes the ten starts of the scikit-learn of then; nothing of torchvision is called.
"""

import ast
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from crosschecks.authors.clone import Clone, pretend
from crosschecks.clustering import within
from crosschecks.network import build, flat
from crosschecks.ours import CLIENTS, all_models, first_models, make_kinds, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared, values
from fedcohort.core.method import Method
from fedcohort.core.round.merge import merged_model
from fedcohort.methods.fedconcat import FedConcat
from fedcohort.stats.clustering import relabel
from fedcohort.util.keyed import generator, numpy_generator

REPOSITORY = "sjtudyq/FedConcat"
GROUPS, BELOW, ABOVE = 5, 6, 6  # rounds that train the groups' models, and the layer on top
WIDTH, MOMENTUM, DECAY, CAPACITY = 84, 0.9, 1e-5, 1.2
ENCODER = 65 * WIDTH  # its weights
BRANCH = "args.alg == 'fedconcat'"


def theirs(problem: Arrays, clone: Path) -> Arrays:
    pretend("datasets", "torchvision", "torchvision.transforms", "torchvision.utils")
    import experiments
    import kmeanslimited

    kmeanslimited.KMeans = TenStarts
    first, top, noise, shares = (problem.pop(key) for key in ("first", "top", "noise", "shares"))
    given = Training(**problem)
    networks = parts(torch.from_numpy(first), torch.from_numpy(top))
    program = (clone / "experiments.py").read_text()
    mended = program
    for part in ("encoder_list[0].state_dict()", "classifier_list[0].state_dict()"):
        mended = mended.replace(f"[{part} for i", f"[copy.deepcopy({part}) for i")
    answer = {"capped": experiments.constrained_kmeans(shares, GROUPS, int(CAPACITY * len(shares) / GROUPS))}
    for name, text in {"program": program, "mended": mended}.items():
        world = branch(text, vars(experiments), networks, given)
        halves = zip(world["encoder_global_para"], world["classifier_global_para"], strict=True)
        whole = [torch.cat([own.flatten() for half in pair for own in half.values()]) for pair in halves]
        answer[f"{name} below"] = torch.stack(whole).numpy()
        answer[f"{name} above"] = flat(world["larger_classifier_global"]).numpy()
    infer = runpy.run_path(str(clone / "experiments-fedconcat-id.py"))["train_net_encoder_classifier"]
    infer.__globals__.update(args=settings(), logger=MagicMock())
    batches, images = iter(torch.from_numpy(noise).reshape(100, 100, 8, 8)), (torch.zeros(1, 8, 8), None)
    torch.rand = lambda _: next(batches)
    untrained = networks["SimpleEncoder"](), networks["SimpleClassifier"](WIDTH)
    answer["inferred"] = np.array(infer(0, *untrained, (images,), None, 0, LR, "sgd", edis=True))
    return answer


def parts(first: Tensor, top: Tensor) -> dict[str, type]:
    """The network under the names that the program has for its parts."""

    class Encoder(nn.Sequential):
        def __init__(self, **_: Any) -> None:
            super().__init__(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU())
            vector_to_parameters(first[:ENCODER].clone(), self.parameters())

    class Classifier(nn.Module):
        def __init__(self, hidden_dim: int, output_dim: int = 10) -> None:
            super().__init__()
            self.fc = nn.Linear(hidden_dim, output_dim)
            begin = first[ENCODER:] if hidden_dim == WIDTH else top
            vector_to_parameters(begin.clone(), self.parameters())

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    return {"SimpleEncoder": Encoder, "SimpleClassifier": Classifier}


def settings() -> SimpleNamespace:
    """What the program reads from its command line."""
    args = SimpleNamespace(dataset="mnist", model="simple-cnn", datadir="", noise=0, noise_type="level")
    args.n_parties, args.n_clusters, args.sample, args.batch_size = CLIENTS, GROUPS, 1.0, 0
    args.encoder_round, args.classifier_round, args.epochs = BELOW, ABOVE, 1
    args.optimizer, args.lr, args.rho, args.reg = "sgd", LR, MOMENTUM, DECAY
    return args


class TenStarts(KMeans):
    """K-means as it was, with groups numbered like ours."""

    def __init__(self, n_clusters: int) -> None:
        super().__init__(n_clusters, n_init=10, random_state=0)

    def fit(self, x: np.ndarray) -> "TenStarts":
        self.labels_ = relabel(super().fit(x).labels_)
        return self


def branch(program: str, world: dict[str, Any], networks: dict[str, type], given: Training) -> dict[str, Any]:
    """What the program's names stand for at the end of its branch for this method."""
    own = {client: np.flatnonzero(given.owner == client) for client in range(CLIENTS)}
    counts = np.stack([np.bincount(given.y[mine], minlength=10) for mine in own.values()])

    def load(*positions: Any, dataidxs: Any = None, noise_level: float = 0) -> tuple[Any, ...]:
        mine = positions[4] if len(positions) > 4 else [] if dataidxs is None else dataidxs
        batch = torch.from_numpy(given.x[mine]), torch.from_numpy(given.y[mine])
        return (batch,) * int(given.steps[0]), (), (), ()  # a "loader" is the full batch for each step

    world |= networks | {
        "args": settings(),
        "device": "cpu",
        "logger": MagicMock(),
        "KMeans": TenStarts,
        "client_distribution": counts / counts.sum(axis=1, keepdims=True),
        "net_dataidx_map": own,
        "get_dataloader": load,
        "compute_accuracy": lambda *_, **__: 0.0,
    }
    nodes = (node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.If))
    (method,) = (node for node in nodes if ast.unparse(node.test) == BRANCH)
    exec(compile(ast.Module(method.body, []), "experiments.py", "exec"), world)
    return world


def rows(clone: Clone) -> list[Row]:
    problem, random = make_kinds(1, BELOW + ABOVE), numpy_generator(0, "crosschecks", "fedconcat")
    task = task_of(problem, lambda: build(64, 10, WIDTH), momentum=MOMENTUM, weight_decay=DECAY)
    part, shares = FedConcat(groups=GROUPS, rounds=BELOW), random.dirichlet(np.full(10, 0.3), 40)
    profile = task.profile(Method.of(part))
    noise = torch.rand(part.noise, 64, generator=generator(profile.seed, "noise"))
    begin, above = task.model.init(task.seed).params, merged_model(task, GROUPS).init(task.seed).params
    first, top = begin.numpy(), above.numpy()
    given = {"first": first, "top": top, "noise": noise.numpy(), "shares": shares}
    answer = clone.ask({**vars(problem), **given})

    call = f"`fedconcat(groups={GROUPS}, rounds={BELOW})`"
    run = states(call.strip("`"), problem, task)
    (below,), (whole,) = all_models(run[BELOW : BELOW + 1]), first_models(run[-1:])
    inferred = part.infer(begin[None], torch.zeros(1, 0), profile)[0]
    capped = FedConcat(groups=GROUPS, capacity=CAPACITY).cluster(shares, task.seed)
    live = clone.reason(
        "On a CPU, the groups' first models are not copies but the weights of the first client's networks, "
        "{}, {}: as soon as it has trained, the groups that have not yet start from what it learnt. *Mended* "
        "copies.",
        ("experiments.py", "encoder_global_para = [encoder_list[0].state_dict() for i"),
        ("experiments.py", "classifier_global_para = [classifier_list[0].state_dict() for i"),
    )
    greedy = clone.reason(
        "Sums of squares within groups of at most 9 of 40 clients. The code sends the farthest clients of a "
        "group that is too large to the next best, one by one, {}; ours is the assignment of least cost.",
        ("kmeanslimited.py", "furthest_point_idx = idx["),
    )
    loose, tight = within(shares, answer["capped"]), within(shares, capped)
    most = np.bincount(capped).max(), np.bincount(answer["capped"]).max()
    return [
        compared(
            "FedConcat, groups' models", (call, below), ("program", answer["program below"]), live, first
        ),
        compared("FedConcat, groups' models", (call, below), ("mended", answer["mended below"]), since=first),
        compared("FedConcat, layer on top", (call, whole), ("mended", answer["mended above"]), since=top),
        compared(
            "FedConcat-ID, labels", ("`fedconcat(inferred=True)`", inferred), ("-id", answer["inferred"])
        ),
        values("FedConcat, largest group of forty clients", *most),
        values("FedConcat, groups of forty clients", tight, loose, greedy),
    ]
