"""FeSEM: the authors' trainer, its clustering server and the K-means in TensorFlow.

Put around it: TensorFlow 2 speaks as version 1; clients answer with models from a script, from our run of the
same; the first centres are those of ours; nothing is evaluated. Their side runs in an environment with
TensorFlow and without PyTorch, so what is ours is imported where it is used.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from crosschecks.authors.clone import Clone
from crosschecks.problem import Arrays
from crosschecks.rows import Row, compared

REPOSITORY = "mingxuts/multi-center-fed-learning"
GROUPS, LAYER = 3, "dense/kernel"
UNUSED = "pandas", "scipy", "scipy.spatial", "sklearn", "sklearn.cluster", "sklearn.metrics"


def theirs(problem: Arrays, clone: Path) -> Arrays:
    import tensorflow.compat.v1 as tf

    sys.modules.update({name: MagicMock() for name in UNUSED}, tensorflow=tf)
    sys.path.insert(0, str(clone / "models"))
    import fedsem
    import mlhead_clus_server

    places, centres = problem["places"], problem["centres"]  # [rounds, K, P], [groups, P]
    rounds, clients, params = places.shape
    mlhead_clus_server.MODEL_PARAMS["digits.cnn"] = 1, params
    mlhead_clus_server.VARIABLE_PARAMS["digits.cnn"] = LAYER
    fedsem.mlhead_print_stats = lambda *_: np.zeros(1)
    fedsem.log_history = lambda *_: None
    path = []

    class Model:
        size, round = 0, 0

        def __init__(self):
            self.graph = tf.Graph()
            with self.graph.as_default():
                tf.get_variable(LAYER, [params])
        def get_params(self): return [centres[0]]
        def set_params(self, _): pass
        def train(self, data, epochs, batch): return 0, [places[min(self.round + 1, rounds - 1), data["x"][0]]]
        def close(self): pass

    class Trainer(fedsem.Fedsem_Trainer):
        def model_config(self, config, *_):
            model = Model()
            there = [fedsem.Client(k, [], {"x": [k], "y": [0] * int(problem["sizes"][k])}, {"x": [], "y": []}, model) for k in range(clients)]
            self.mlhead_cluster = server = mlhead_clus_server.Mlhead_Clus_Server(model, "digits", "cnn", GROUPS, clients)
            server.select_clients(0, there)
            server.get_init_point_data = lambda: {c.id: places[0, c.id] for c in server.selected}
            k = server._clusterModel
            with k.graph.as_default():
                k.sess.run(tf.global_variables_initializer())
                self.variable = tf.global_variables()[-1]
            k.sess.run(k.init_ops, {k.X: np.resize(centres, (clients, params))})
            k.first = False
            self.center_models = [None] * GROUPS
            self.center_init(GROUPS, model)
            self.model = model
            if config["clients"]: self.clients = there
            return there, None, model, None

        def clustering_function(self, points):
            found = super().clustering_function(points)
            group = np.zeros(clients, dtype=int)
            for number, (_, members) in enumerate(found):
                group[[c.id for c in members]] = number
            centroids = self.mlhead_cluster._clusterModel.sess.run(self.variable)
            sent = [c[0] for c in self.center_models]
            path.append((group, centroids, np.stack(sent)))
            self.model.round = len(path) - 1
            return found

    def run(given):
        path.clear()
        config = {"num-clusters": GROUPS, "num-rounds": rounds, "eval-every": 1, "epochs": 1, "batch-size": 1, "clients-per-round": -1, "update-center-every": 1, "seed": 0, "clients": given}
        Trainer(None, None, None, None).begins(config, SimpleNamespace(dataset="digits"))
    try:
        run(False); error = ""
    except AttributeError as e:
        error = f"AttributeError: {e}"
    run(True)
    g, c, s = (np.stack(x) for x in zip(*path))
    return {"published": np.array([error]), "groups": g, "centroids": c, "sent": s}


def rows(clone: Clone) -> list[Row]:
    from crosschecks.ours import Method, all_models, history, make_moves, scripted
    moves = make_moves()
    st = history(Method.parse(f"fesem(groups={GROUPS})"), scripted(moves), 8)[1:]
    places = np.stack([s.grouping["last"].numpy() for s in st])
    models = np.stack(all_models(st))
    groups = np.stack([s.grouping["group"].numpy() for s in st])
    a = clone.ask({"places": places, "centres": models[0], "sizes": moves.sizes}, "fesem")
    print(a["published"], a["groups"].tolist(), groups.tolist())
    print(np.abs(a["centroids"]-models).max(axis=(1,2)))
    print(np.abs(a["sent"][1:]-models[1:]).max(axis=(1,2)))
    return []
