"""FeSEM: the authors' trainer, their clustering server and their K-means in TensorFlow.

Put around it: TensorFlow 2 speaks as version 1; clients answer with the models that ours ended with, and the
first centres are ours; nothing is evaluated. Their side has an environment with TensorFlow and without
PyTorch, so that ours is imported where it is used.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from crosschecks.authors.clone import Clone, attempt, pretend
from crosschecks.problem import Arrays
from crosschecks.rows import Row, compared

REPOSITORY = "mingxuts/multi-center-fed-learning"
GROUPS, LAYER, DATA = 3, "dense/kernel", "digits"


def theirs(problem: Arrays, clone: Path) -> Arrays:
    import tensorflow.compat.v1 as tf

    pretend("pandas", "scipy", "scipy.spatial", "sklearn", "sklearn.cluster", "sklearn.metrics")
    sys.modules["tensorflow"] = tf
    sys.path.insert(0, str(clone / "models"))
    import fedsem
    import mlhead_clus_server

    places, centres, sizes = problem["places"], problem["centres"], problem["sizes"].tolist()
    rounds, clients, params = places.shape
    mlhead_clus_server.MODEL_PARAMS[f"{DATA}.cnn"] = 1, params
    mlhead_clus_server.VARIABLE_PARAMS[f"{DATA}.cnn"] = LAYER
    fedsem.mlhead_print_stats, fedsem.log_history = lambda *_: np.zeros(1), lambda *_: None
    path: list[tuple[np.ndarray, ...]] = []

    class Model:
        """The model that all clients share; training it is looking up where it goes."""

        size = 0

        def __init__(self) -> None:
            self.graph = tf.Graph()
            with self.graph.as_default():
                tf.get_variable(LAYER, [params])

        def get_params(self) -> list[np.ndarray]:
            return [centres[0]]

        def train(self, data: dict[str, Any], epochs: int, batch: int) -> tuple[int, list[np.ndarray]]:
            return 0, [places[min(len(path), rounds - 1), data["x"]]]  # the last is not looked at

        def set_params(self, params: Any) -> None: ...

        def close(self) -> None: ...

    class Trainer(fedsem.Fedsem_Trainer):
        def model_config(self, *_: Any) -> tuple[Any, ...]:
            model, nothing = Model(), {"x": [], "y": []}
            there = [
                fedsem.Client(number, [], {"x": number, "y": [0] * size}, nothing, model)
                for number, size in enumerate(sizes)
            ]
            server = mlhead_clus_server.Mlhead_Clus_Server(model, DATA, "cnn", GROUPS, clients)
            server.select_clients(0, there)
            server.get_init_point_data = lambda: {own.id: places[0, own.id] for own in server.selected}
            self.kmeans, self.mlhead_cluster, self.center_models = (
                server._clusterModel,
                server,
                [None] * GROUPS,
            )
            self.center_init(GROUPS, model)
            with self.kmeans.graph.as_default():
                self.kmeans.sess.run(tf.global_variables_initializer())
                self.centroids = tf.global_variables()[-1]
            self.kmeans.sess.run(self.kmeans.init_ops, {self.kmeans.X: np.resize(centres, places[0].shape)})
            self.kmeans.first = False
            self.there = there
            return there, None, model, None

        def clustering_function(self, points: Any) -> Any:
            found, group = super().clustering_function(points), np.zeros(clients, dtype=int)
            for number, (_, members) in enumerate(found):
                group[[client.id for client in members]] = number
            sent = np.stack([params for (params,) in self.center_models])
            path.append((group, self.kmeans.sess.run(self.centroids), sent))
            return found

    class Mended(Trainer):
        def model_config(self, *_: Any) -> tuple[Any, ...]:
            found = super().model_config()
            self.clients = self.there
            return found

    config = {"num-clusters": GROUPS, "num-rounds": rounds, "clients-per-round": -1, "update-center-every": 1}
    config |= {"eval-every": 1, "epochs": 1, "batch-size": 1, "seed": 0}

    def run(trainer: Any) -> list[np.ndarray]:
        """Of each clustering, the groups, K-means' centres, and the models that clients were sent to."""
        path.clear()
        trainer(None, None, None, None).begins(config, SimpleNamespace(dataset=DATA))
        return [np.stack(each) for each in zip(*path, strict=True)]

    published = attempt(lambda: run(Trainer)[1])
    groups, centroids, sent = run(Mended)
    return {"published": published, "groups": groups, "centroids": centroids, "sent": sent}


def rows(clone: Clone) -> list[Row]:
    from crosschecks.ours import all_models, history, make_moves, scripted
    from fedcohort.core.method import Method

    call, moves = f"fesem(groups={GROUPS})", make_moves()
    run = history(Method.parse(call), scripted(moves), len(moves.deltas))[1:]
    places = np.stack([state.grouping["last"].numpy() for state in run])
    group, centres = np.stack([state.grouping["group"].numpy() for state in run]), np.stack(all_models(run))
    answer = clone.ask({"places": places, "centres": centres[0], "sizes": moves.sizes}, "fesem")
    together, joined = (own[:, :, None] == own[:, None] for own in (group, answer["groups"]))
    clients = clone.reason(
        "The trainer ends after its first round: it asks for clients, {}, that it keeps nowhere. *Mended* "
        "keeps them.",
        ("models/fedsem.py", "self.mlhead_cluster.variable, self.clients[0].model)"),
    )
    late = clone.reason(
        "The models that clients are sent are means over the groups of the round that ends, {}; new groups "
        "are found only then, {}. The paper's M-step is the mean over the new ones, which the code computes "
        "inside K-means, {}, for the next E-step alone. In both all clients count alike; the code would "
        "weigh by samples, but takes the length of a dictionary for their number, {}.",
        ("models/fedsem.py", "self.center_models[c_idx] = server.update_model_wmode()"),
        ("models/fedsem.py", "learned_cluster = self.clustering_function(c_wts) # cwts is N"),
        ("models/kmean_model.py", "update_centroids = centroids.assign(new_means)"),
        ("models/mlhead_client.py", "num_train_samples = len(data)"),
    )
    ours, mended = f"`{call}`", "mended"
    return [
        compared("FeSEM", (ours, centres), ("Fedsem_Trainer", answer["published"]), clients, moves.init),
        compared("FeSEM, E-step", (ours, together), (f"{mended}, groups", joined)),
        compared(
            "FeSEM, M-step", (ours, centres), (f"{mended}, K-means", answer["centroids"]), "", moves.init
        ),
        compared("FeSEM, models sent", (ours, centres[1:]), (mended, answer["sent"][1:]), late, moves.init),
    ]
