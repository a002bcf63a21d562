"""FedConcat: the branch of the authors' program that is this method, and what its -ID variant infers.

Put around it: examples and network are ours (with the 84 features that the program takes for granted), K-means
makes the ten starts of the scikit-learn of then and numbers groups as ours are; nothing of torchvision is
called.
"""

import ast
import runpy
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from crosschecks.authors.clone import Clone
from crosschecks.network import examples, flat
from crosschecks.ours import CLIENTS, all_models, make_kinds, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared, values
from fedcohort.core.round.merge import merged_model
from fedcohort.methods.fedconcat import FedConcat
from fedcohort.stats.clustering import relabel
from fedcohort.util.keyed import generator, numpy_generator

REPOSITORY = "sjtudyq/FedConcat"
GROUPS, BELOW, ABOVE, WIDTH = 3, 6, 6, 84
NOISE = 10_000
SHARED, OWN = "_list[0].state_dict() for i in range(num_K)]", "copy.deepcopy({}_list[0].state_dict())"


class Encoder(nn.Sequential):
    """All of the network but its last layer."""

    first: Tensor

    def __init__(self, **_: Any) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU())
        vector_to_parameters(self.first[: 65 * WIDTH].clone(), self.parameters())


class Classifier(nn.Module):
    """The last layer, of one network or on top of all encoders."""

    first: Tensor
    top: Tensor

    def __init__(self, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(hidden_dim, output_dim)
        begin = self.first[65 * WIDTH :] if hidden_dim == WIDTH else self.top
        vector_to_parameters(begin.clone(), self.parameters())

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class TenStarts(KMeans):
    def __init__(self, n_clusters: int) -> None:
        super().__init__(n_clusters, n_init=10, random_state=0)

    def fit(self, x: np.ndarray) -> "TenStarts":
        super().fit(x)
        self.labels_ = relabel(self.labels_)
        return self


def theirs(problem: Arrays, clone: Path) -> Arrays:
    names = "datasets", "torchvision", "torchvision.transforms", "torchvision.utils"
    sys.modules.update({name: MagicMock() for name in names})
    import experiments

    Encoder.first = Classifier.first = torch.from_numpy(problem.pop("first"))
    Classifier.top, noise, shares = torch.from_numpy(problem.pop("top")), problem.pop("noise"), problem.pop("shares")
    given = Training(**problem)
    program = (clone / "experiments.py").read_text()
    mended = program
    for part in ("encoder", "classifier"):
        mended = mended.replace(f"[{part}_list[0].state_dict() for i", f"[copy.deepcopy({part}_list[0].state_dict()) for i")
    answer = {}
    for name, text in (("published", program), ("mended", mended)):
        world = branch(text, experiments, given)
        groups = zip(world["encoder_global_para"], world["classifier_global_para"], strict=True)
        below = [torch.cat([v.flatten() for part in pair for v in part.values()]) for pair in groups]
        answer[f"{name} below"] = torch.stack(below).numpy()
        answer[f"{name} above"] = flat(world["larger_classifier_global"]).numpy()
        answer["groups"] = np.array(world["assign"])
    answer["capped"] = relabel(experiments.constrained_kmeans(shares, 5, int(1.2 * len(shares) / 5)))

    identified = runpy.run_path(str(clone / "experiments-fedconcat-id.py"))["train_net_encoder_classifier"]
    world = identified.__globals__
    world.update(logger=MagicMock(), args=world_args())
    chunks = iter(torch.from_numpy(noise).reshape(100, 100, 8, 8))
    images = [(x.reshape(-1, 8, 8), y) for x, y in [examples(given, 0)]]
    torch.rand = lambda shape: next(chunks)
    answer["inferred"] = np.array(identified(0, Encoder(), Classifier(WIDTH, 10), tuple(images), None, 0, LR, "sgd", edis=True))
    return answer


def world_args() -> Namespace:
    return Namespace(
        dataset="mnist", model="simple-cnn", datadir="", partition="", batch_size=0, n_parties=CLIENTS,
        n_clusters=GROUPS, encoder_round=BELOW, classifier_round=ABOVE, sample=1.0, epochs=1, lr=LR, rho=0.9,
        reg=1e-5, optimizer="sgd", noise=0, noise_type="level", beta=0,
    )


def branch(program: str, module: Any, given: Training) -> dict[str, Any]:
    """What the names of the program stand for after its branch for FedConcat."""
    (method,) = (
        node for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "args.alg == 'fedconcat'"
    )
    rows = {client: np.flatnonzero(given.owner == client) for client in range(CLIENTS)}

    def get_dataloader(*_: Any, dataidxs: Any = None, noise_level: Any = None) -> Any:
        dataidxs = _[4] if len(_) > 4 else dataidxs
        batch = () if dataidxs is None else (torch.from_numpy(given.x[dataidxs]), torch.from_numpy(given.y[dataidxs]))
        return (batch,) * 5, (), (), ()

    counts = np.stack([np.bincount(given.y[own], minlength=10) for own in rows.values()])
    world = vars(module)
    world.update(
        args=world_args(), logger=MagicMock(), device="cpu", net_dataidx_map=rows, get_dataloader=get_dataloader,
        client_distribution=counts / counts.sum(axis=1, keepdims=True), KMeans=TenStarts, SimpleEncoder=Encoder,
        SimpleClassifier=Classifier, compute_accuracy=lambda *_, **__: 0.0,
    )
    exec(compile(ast.Module(method.body, []), "experiments.py", "exec"), world)
    return world


def rows(clone: Clone) -> list[Row]:
    problem = make_kinds(1, BELOW + ABOVE)
    def net(): return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    task = task_of(problem, net, momentum=0.9, weight_decay=1e-5)
    first = task.model.init(task.seed).params.numpy()
    top = merged_model(task, GROUPS).init(task.seed).params.numpy()
    part = FedConcat(groups=GROUPS)
    profile = task.profile(__import__("fedcohort").core.method.Method.of(part))
    noise = torch.rand(NOISE, 64, generator=generator(profile.seed, "noise")).numpy()
    random = numpy_generator(0, "crosschecks", "fedconcat")
    shares = random.dirichlet(np.full(10, 0.3), 40)
    answer = clone.ask({**vars(problem), "first": first, "top": top, "noise": noise, "shares": shares})
    code = f"fedconcat(groups={GROUPS}, rounds={BELOW})"
    st = states(code, problem, task)
    print(answer["groups"], st[0].grouping["group"].tolist(), len(st[-1].groups), len(st[-1].encoders))
    below = all_models([st[BELOW]])[0]
    above = st[-1].groups[0].weights.params.numpy()
    for n in ("published","mended"): print(n, np.abs(below-answer[n+" below"]).max(axis=1), np.abs(above-answer[n+" above"]).max())
    inferred = part.infer(torch.from_numpy(first)[None], torch.zeros(1,0), profile)[0].numpy()
    print(np.abs(inferred-answer["inferred"]).max())
    print(np.bincount(answer["capped"]), np.bincount(FedConcat(groups=5,capacity=1.2).cluster(shares, 0)))
    return []
