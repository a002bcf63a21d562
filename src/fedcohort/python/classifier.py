"""``fc.FederatedClassifier``: federated training behind scikit-learn's words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.served import NOBODY, ServingModels
from fedcohort.core.task import Task
from fedcohort.data import Dataset, Federation, SplitPlan, federate
from fedcohort.data.partition import Partitioner, partitioner
from fedcohort.data.scaling import scaled
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models import flat_model
from fedcohort.presets import read_method
from fedcohort.runs.advice.auto import advice_for, wish_of
from fedcohort.runs.experiment import HELD_OUT
from fedcohort.runs.run import Evaluation, run
from fedcohort.runs.sweep import with_settings
from fedcohort.runs.tuning.halving import JUDGED_ON, Halving, Trial, late_score
from fedcohort.runs.tuning.search import LR, Search, space_of
from fedcohort.util.budget import EACH
from fedcohort.util.cpu import one_thread
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse_one
from fedcohort.util.settings import at_least, build, checked

CLIENTS = 10  # of a federation that is made up, or as many as there are rows
Rounds = Annotated[int, at_least(1)]


class FederatedClassifier(ClassifierMixin, BaseEstimator):
    """Trains a network across clients with one method, or with the best of those that are advised for their
    labels (``"auto"``; ``method_`` and ``lr_`` are what it became); scikit-learn's conventions hold.

    ``fit(X, y, clients=ids)`` takes one client id for each row. Without them the rows are dealt to simulated
    clients by ``partition``, such as ``"dirichlet(clients=30, alpha=0.1)"``; None: ten equal random shares.

    ``predict(X, clients=ids)`` answers each row with the model that serves its client, which matters where a
    method makes models for groups or for single clients. Rows of clients that were not there in training, and
    all rows without ``clients``, are answered by the mean of all models' probabilities, weighted by the
    training rows that each serves: where there is one model, by that.

    ``model`` is a name (with its ``settings``), a module, or a function or class that makes one. ``scale``
    standardises features by all clients' training rows. What is drawn at random depends on ``random_state``.
    """

    def __init__(
        self,
        method: str | Method = "fedavg",
        model: str | nn.Module | Callable[..., nn.Module] = "mlp",
        settings: Mapping[str, Any] | None = None,
        rounds: int = 50,
        cohort: int | float = 0.5,
        lr: float = 0.05,
        epochs: float = 1.0,
        batch: int = 32,
        partition: str | Partitioner | None = None,
        scale: bool = True,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.model = model
        self.settings = settings
        self.rounds = rounds
        self.cohort = cohort
        self.lr = lr
        self.epochs = epochs
        self.batch = batch
        self.partition = partition
        self.scale = scale
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, clients: ArrayLike | None = None) -> "FederatedClassifier":
        """Trains; ``clients`` are the ids of the clients to whom the rows belong."""
        X, y = validate_data(self, X, y, allow_nd=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("all rows are of one class: a classifier needs at least two")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        ids = None if clients is None else _ids(clients, X)
        with _value_errors(), one_thread():
            names = tuple(map(str, self.classes_))
            numbers = torch.ones(X.shape[1], dtype=torch.bool) if self.scale else None
            data = Dataset(_tensor(X), torch.from_numpy(codes), names, owner=ids, numbers=numbers)
            self.method_, self.lr_ = self._chosen(data, seed)
            federation = self._dealt(data, self.method_, seed)
            self._train(federation, seed)
        self.clients_ = np.array(federation.clients) if ids is None else ids[_first_rows(federation)]
        return self

    def _chosen(self, data: Dataset, seed: int) -> tuple[Method, float]:
        """The method and the clients' learning rate, as they are given or as ``auto`` finds them."""
        if not isinstance(self.method, str):
            return self.method, self.lr
        wish = wish_of(self.method)
        if wish is None:
            return read_method(self.method), self.lr
        task = self._task(self._dealt(data, Method.of(), seed), self.lr, seed)
        methods = [read_method(name) for name in advice_for(task, wish).choices]
        return (methods[0], self.lr) if len(methods) == 1 else self._tuned(methods, data, seed)

    def _tuned(self, methods: Sequence[Method], data: Dataset, seed: int) -> tuple[Method, float]:
        """The one of them that does best on rows held out for that, with the values that are best there."""
        searches = [Search(space_of(method), seed, EACH) for method in methods]
        halving = Halving(searches, checked(self.rounds, Rounds, "rounds"), EACH)
        federations = [self._dealt(data, method, seed, tuning=JUDGED_ON) for method in methods]

        def tried(trial: Trial) -> tuple[Method, float]:
            return with_settings([methods[trial.method]], trial.point)[0], trial.point.get(LR, self.lr)

        def train(trials: Sequence[Trial], rounds: int, _: float) -> None:
            for trial in trials:
                method, lr = tried(trial)
                task = self._task(federations[trial.method], lr, seed)
                rows = run(method, task, rounds, Evaluation(every=halving.every)).rows
                trial.scores[rounds] = late_score(rows, rounds)

        best = halving.best(halving.run(train))
        return tried(max(best, key=lambda trial: (trial.rounds, trial.score)))

    def _dealt(self, data: Dataset, method: Method, seed: int, tuning: float = 0.0) -> Federation:
        held_out = HELD_OUT if "validation" in method.uses else 0.0
        split = SplitPlan("pool", test=0.0, validation=held_out, tuning=tuning)
        return federate(data, self._partitioner(data), split, seed)

    def _task(self, federation: Federation, lr: float, seed: int) -> Task:
        local = build(Local, {"lr": lr, "epochs": self.epochs, "batch": self.batch}, "local")
        settings = dict(self.settings or {})
        return Task.of(federation, self.model, settings, local=local, cohort=self.cohort, seed=seed)

    def _partitioner(self, data: Dataset) -> Partitioner | None:
        if data.owner is not None:
            return None
        if isinstance(self.partition, Partitioner):
            return self.partition
        if self.partition is None:
            return partitioner("iid", clients=min(CLIENTS, len(data)))
        name, parameters = parse_one(self.partition, "partition")
        return partitioner(name, **parameters)

    def _train(self, federation: Federation, seed: int) -> None:
        """Holds what predictions need, in numbers."""
        rounds, task = checked(self.rounds, Rounds, "rounds"), self._task(federation, self.lr_, seed)
        result = run(self.method_, task, rounds, Evaluation(every=rounds))
        task = task.for_method(self.method_)
        self._service = ServingModels.of(self.method_, result.state, task, ReferenceEngine(task))
        self._scale, self._network = federation.scale, (self.model, dict(self.settings or {}))

    def predict_proba(self, X: Any, clients: ArrayLike | None = None) -> np.ndarray:
        """``[n, classes_]``: the answer of the model that serves each row's client."""
        check_is_fitted(self)
        X = validate_data(self, X, allow_nd=True, reset=False)
        x, (model, settings) = _tensor(X), self._network
        if self._scale is not None:
            x = scaled(x, self._scale, torch.ones(x.shape[1], dtype=torch.bool))
        place = {each: number for number, each in enumerate(self.clients_.tolist())}
        known = [] if clients is None else [place.get(each, NOBODY) for each in _ids(clients, X).tolist()]
        client = torch.tensor(known) if known else torch.full((len(x),), NOBODY)
        with _value_errors(), one_thread():
            network = flat_model(model, tuple(x.shape[1:]), len(self.classes_), settings)
            return self._service.probabilities(network, x, client).numpy()

    def predict(self, X: Any, clients: ArrayLike | None = None) -> np.ndarray:
        """The likeliest class of each row."""
        answers = self.predict_proba(X, clients)
        return self.classes_[answers.argmax(1)]

    def score(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, clients: ArrayLike | None = None
    ) -> float:
        """The accuracy of :meth:`predict`."""
        return float(accuracy_score(y, self.predict(X, clients), sample_weight=sample_weight))


def _ids(clients: ArrayLike, X: np.ndarray) -> np.ndarray:
    ids = column_or_1d(clients)
    check_consistent_length(X, ids)
    return np.array(ids.tolist()) if ids.dtype == object else ids  # words, as pandas keeps them


def _tensor(X: np.ndarray) -> Tensor:
    return torch.from_numpy(X.astype(np.float32))


def _first_rows(federation: Federation) -> np.ndarray:
    """One row of each client."""
    return federation.train.index[federation.train.offsets[:-1]].numpy()


@contextmanager
def _value_errors() -> Iterator[None]:
    """What scikit-learn expects of a parameter that cannot be."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from error
