"""What a finished run answers: its models as functions of examples, each with the clients that it serves."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcohort.core import batchnorm
from fedcohort.core.adapting import adapted, as_used
from fedcohort.core.engine import Engine
from fedcohort.core.evaluate import presented, serving
from fedcohort.core.method import Method
from fedcohort.core.round.merge import features
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.models import flat_model
from fedcohort.models.flat import Flat, Weights

CHUNK = 4096  # examples answered at a time
NOBODY = -1  # in the place of a client: one that the run did not know


@dataclass(frozen=True)
class ServingModels:
    """The models that serve somebody. It holds numbers alone; the network is given where it is used."""

    models: tuple[Weights, ...]
    serves: Tensor  # [K] int64: which of them answers for each client
    share: Tensor  # [M] float64: of all training samples, those of the clients it serves; 0: one's own
    classes: int
    encoders: tuple[Weights, ...] = ()  # where merged models are read by one layer, see core/round/merge.py

    @classmethod
    def of(cls, method: Method, state: State, task: Task, engine: Engine) -> "ServingModels":
        """What ``method`` came to on ``task``."""
        state, final, profile, engine = presented(method, state, task, task.profile(method), engine)
        shared = serving(method, state)
        known = list(as_used(*adapted(method, state, final, profile, engine, shared)))
        anybody = list(as_used(shared, batchnorm.kept(final, state.clients))) if method.adapts else known
        serves = torch.zeros(final.federation.num_clients, dtype=torch.int64)
        for number, (_, members) in enumerate(known):
            serves[members] = number
        sizes = torch.stack([final.federation.sizes[0, members].sum() for _, members in anybody]).double()
        share, classes = sizes / sizes.sum(), final.federation.num_classes
        if method.adapts:  # who is unknown has made nothing of the model that would serve it
            known, share = [*known, *anybody], torch.cat([torch.zeros(len(known), dtype=share.dtype), share])
        models = tuple(weights for weights, _ in known)
        return cls(models, serves, share, classes, tuple(state.encoders))

    @torch.no_grad()
    def probabilities(self, network: Flat, x: Tensor, client: Tensor) -> Tensor:
        """``[n, C]`` float64: each row answered by the model that serves its client; of NOBODY by all models,
        their probabilities averaged by their shares."""
        out = torch.zeros(len(x), self.classes, dtype=torch.float64)
        answers = torch.where(client == NOBODY, NOBODY, self.serves[client.clamp(min=0)])
        unknown = (answers == NOBODY).nonzero().flatten()
        for number, weights in enumerate(self.models):
            own = (answers == number).nonzero().flatten()
            out[own] = self._answer(network, weights, x[own])
            if len(unknown) and self.share[number] > 0:
                out[unknown] += self.share[number] * self._answer(network, weights, x[unknown])
        return out

    def _answer(self, network: Flat, weights: Weights, x: Tensor) -> Tensor:
        answers = [torch.zeros(0, self.classes, dtype=torch.float64)]
        for chunk in x.split(CHUNK) if len(x) else ():  # many networks cannot reshape an empty batch
            if self.encoders:
                chunk = torch.cat([features(network, each, chunk) for each in self.encoders], 1)
                head = flat_model("logistic", tuple(chunk.shape[1:]), self.classes)
                answers.append(head.answers(weights, chunk).double().softmax(1))
            else:
                answers.append(network.answers(weights, chunk).double().softmax(1))
        return torch.cat(answers)
