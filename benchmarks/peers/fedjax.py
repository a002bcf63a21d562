"""FedJAX: its federated averaging with the jit backend; XLA uses all cores by itself.

Worked around: FedJAX 0.0.17 calls ``jax.tree_map``, which JAX has since removed; it is put back below.

Not the same work: FedJAX shuffles by itself and fills a client's last batch up with more of its examples.
It takes the same number of steps, and the examples reported are those it really visits.
"""

import jax

jax.tree_map = jax.tree_util.tree_map

import fedjax
import haiku as hk
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Stopwatch, read_arguments, report
from fedcohort.bench.jobs import CLASSES, Data, Job, load

Params = dict[str, dict[str, jax.Array]]
Batch = dict[str, jax.Array]


def build_network(job: Job) -> hk.Transformed:
    """The job's network; its layers are numbered in the order of the job's weights."""

    def mlp(batch: Batch) -> jax.Array:
        h = batch["x"].reshape(len(batch["x"]), -1)
        for layer, width in enumerate([200, 200]):
            h = jax.nn.relu(hk.Linear(width, name=f"layer_{layer}")(h))
        return hk.Linear(CLASSES, name="layer_2")(h)

    def lenet5(batch: Batch) -> jax.Array:
        h = batch["x"]
        for layer, channels in enumerate([6, 16]):
            h = jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID", name=f"layer_{layer}")(h))
            h = hk.max_pool(h, (1, 2, 2, 1), (1, 2, 2, 1), padding="VALID")
        h = h.transpose(0, 3, 1, 2).reshape(len(h), -1)  # PyTorch's order, so that weights mean the same
        for layer, width in enumerate([120, 84]):
            h = jax.nn.relu(hk.Linear(width, name=f"layer_{2 + layer}")(h))
        return hk.Linear(CLASSES, name="layer_4")(h)

    return hk.without_apply_rng(hk.transform(mlp if job.model == "mlp" else lenet5))


def first_params(data: Data) -> Params:
    """The job's first weights in JAX's layout: outputs last."""
    params, rest = {}, data.init
    for layer, (shape, bias) in enumerate(data.job.layers):
        weight, b, rest = np.split(rest, [np.prod(shape), np.prod(shape) + bias])
        axes = (1, 0) if len(shape) == 2 else (2, 3, 1, 0)
        params[f"layer_{layer}"] = {"w": jnp.array(weight.reshape(shape).transpose(axes)), "b": jnp.array(b)}
    return params


def images(job: Job, x: np.ndarray) -> np.ndarray:
    """Channels last for the convolutions."""
    return x if job.model == "mlp" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def main() -> None:
    arguments = read_arguments()
    data, watch = load(arguments.folder), Stopwatch()
    job, network = data.job, build_network(data.job)
    params, x = first_params(data), images(data.job, data.x)
    clients = fedjax.InMemoryFederatedData(
        {client: {"x": x[data.rows(client)], "y": data.y[data.rows(client)]} for client in range(job.clients)}
    )

    def loss(params: Params, batch: Batch, rng: jax.Array) -> jax.Array:
        logits = jax.nn.log_softmax(network.apply(params, batch))
        return -jnp.take_along_axis(logits, batch["y"][:, None], axis=1).mean()

    fedjax.set_for_each_client_backend("jit")
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(job.lr, momentum=job.momentum or None),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch, num_epochs=1, seed=0),
    )
    state = algorithm.init(params)
    for number in range(1 + arguments.rounds):
        cohort = data.cohorts[number].tolist()
        keys = jax.random.split(jax.random.PRNGKey(number), len(cohort))
        watch.begin()
        chosen = [(key, *client) for key, client in zip(keys, clients.get_clients(cohort), strict=True)]
        state, _ = algorithm.apply(state, [(client, examples, key) for key, client, examples in chosen])
        jax.block_until_ready(state.params)
        watch.end()
    logits = network.apply(state.params, {"x": images(job, data.x_test)})
    accuracy = float((logits.argmax(1) == data.y_test).mean())
    report("fedjax", data, watch, accuracy, ["fedjax", "jax", "dm-haiku"], samples_per_step=job.batch)


if __name__ == "__main__":
    main()
