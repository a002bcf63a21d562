"""The papers' networks: as large as they should be, refused where they do not fit, alike on all engines."""

import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data import Dataset, Federation, SplitPlan, federate
from fedcohort.data.partition import partitioner
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.models import MODELS, flat_model
from fedcohort.models.networks.embedding_lstm import LSTM
from fedcohort.testing import assert_same, play
from fedcohort.util.errors import UserError
from fedcohort.util.settings import build
from support import REPOSITORY

CIFAR, FMNIST = (3, 32, 32), (1, 28, 28)


def conv(inputs: int, outputs: int, size: int = 3) -> int:
    return (inputs * size * size + 1) * outputs


def dense(*widths: int) -> int:
    return sum((a + 1) * b for a, b in pairwise(widths))


def parameters(
    name: str, shape: tuple[int, ...], classes: int, settings: dict[str, Any], vocabulary: int = 0
) -> int:
    """Counted where no memory is taken and no weight drawn for them."""
    with torch.device("meta"):
        network = build(MODELS.get(name), settings, "model").network(shape, classes, vocabulary)
    return sum(weights.numel() for weights in network.parameters())


VGG11 = [(3, 64), (64, 128), (128, 256), (256, 256), (256, 512), (512, 512), (512, 512), (512, 512)]
VGG19_CONVOLUTIONS = 143_667_240 - dense(512 * 7 * 7, 4096, 4096, 1000)
VGG19_CHANNELS = 2 * 64 + 2 * 128 + 4 * 256 + 8 * 512
CIFAR_CNN = [(3, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "settings", "params"),
    [
        # Clust-PSI-PFL, Serengeti: three hidden layers of 500.
        ("mlp", (20,), 4, {"widths": [500, 500, 500]}, dense(20, 500, 500, 500, 4)),
        # 28 -> 26 -> 13 -> 11 -> 5 -> 3 -> 1: 32 features.
        ("fmnist_cnn", FMNIST, 10, {}, conv(1, 8) + conv(8, 16) + conv(16, 32) + dense(32, 2048, 10)),
        # Two numbers of each BatchNorm per channel; 32 -> 16 -> 8 -> 4.
        (
            "cifar_cnn",
            CIFAR,
            10,
            {},
            sum(conv(a, b) + 2 * b for a, b in CIFAR_CNN) + dense(128 * 16, 128, 10) + 2 * 128,
        ),
        # 32 -> 28 -> 14 -> 10 -> 5.
        ("fedgwc_cnn", CIFAR, 100, {}, conv(3, 64, 5) + conv(64, 64, 5) + dense(64 * 25, 384, 192, 100)),
        ("vgg11", CIFAR, 10, {}, sum(conv(a, b) for a, b in VGG11) + dense(512, 512, 512, 10)),
        # Sixteen convolutions and their norms. The original, with 143,667,240 parameters (Simonyan and
        # Zisserman, Table 2: 144 million), has no norms and larger dense layers.
        ("vgg19", CIFAR, 10, {}, VGG19_CONVOLUTIONS + 2 * VGG19_CHANNELS + dense(512, 512, 512, 10)),
        # Sandler et al., Table 4: 3.4 million; torchvision's has 3,504,872.
        ("mobilenet_v2", CIFAR, 1000, {}, 3_504_872),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_number_of_parameters(
    name: str, shape: tuple[int, ...], classes: int, settings: dict[str, Any], params: int
) -> None:
    assert parameters(name, shape, classes, settings) == params


def test_fedentopt_says_over_four_million() -> None:
    assert 4_000_000 < flat_model("vgg11", CIFAR, 10, {"width": 42}).num_params < 4_500_000


def test_number_of_parameters_of_text_models() -> None:
    """Each of an LSTM's four gates has a weight per input and per unit, and in PyTorch two biases."""
    small = {"dimension": 6}
    assert flat_model("embedding_dense", (7,), 3, small, 50).num_params == 50 * 6 + dense(7 * 6, 8, 3)
    lstm = 4 * 10 * (6 + 10 + 2)
    assert flat_model("embedding_lstm", (7,), 3, small, 50).num_params == 50 * 6 + lstm + dense(10, 3)


def test_documented_table() -> None:
    """docs/experiment-file.md lists every model, with its parameters on the example it gives."""
    text = (REPOSITORY / "docs" / "experiment-file.md").read_text()
    section = text.partition("## Models")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "| `" in line
    ]
    assert sorted(row[0].strip("`") for row in rows) == MODELS.names()
    for name, _, _, example, params in rows:
        numbers = [int(number) for number in re.findall(r"\d+", example)]
        shape, vocabulary = (numbers[:1], numbers[1]) if "tokens" in example else (numbers[:-1], 0)
        count = parameters(name.strip("`"), tuple(shape), numbers[-1], {}, vocabulary)
        assert f"{count:,}" == params, name


@pytest.mark.parametrize(
    ("name", "shape", "vocabulary", "message"),
    [
        ("vgg11", FMNIST, 0, r"images of at least 32x32 pixels, not examples of shape \(1, 28, 28\)"),
        ("mobilenet_v2", (3, 16, 64), 0, "at least 32x32"),
        ("fmnist_cnn", (1, 8, 8), 0, "at least 22x22"),
        ("cifar_cnn", (20,), 0, r"not examples of shape \(20,\): use another model, such as mlp"),
        ("fedgwc_cnn", (7,), 50, "fedgwc_cnn reads numbers, but these examples are token ids"),
        ("lenet5", (7,), 50, "token ids: use embedding_dense"),
        ("mlp", (7,), 50, "mlp reads numbers, but these examples are token ids: use embedding_dense"),
        ("embedding_dense", FMNIST, 0, r"reads texts as token ids, not examples of shape \(1, 28, 28\)"),
        ("embedding_lstm", (13,), 0, "use another model, such as mlp, or a source of texts"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    name: str, shape: tuple[int, ...], vocabulary: int, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        flat_model(name, shape, 10, vocabulary=vocabulary)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("fmnist_cnn", (1, 22, 22)), ("cifar_cnn", (3, 8, 8)), ("fedgwc_cnn", (3, 16, 16)), ("vgg11", CIFAR)],
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_the_smallest_image_is_the_smallest(name: str, shape: tuple[int, ...]) -> None:
    """One pixel less fails in the network itself, not only in the sentence."""
    flat_model(name, shape, 10)
    less = (shape[0], shape[1] - 1, shape[2] - 1)
    with pytest.raises(UserError, match="at least"):
        flat_model(name, less, 10)
    with pytest.raises((RuntimeError, ValueError, ZeroDivisionError)):
        MODELS.get(name)().build(less, 10)(torch.zeros(2, *less))


def test_large_images_are_averaged_before_the_dense_layers() -> None:
    assert flat_model("vgg11", (1, 64, 96), 10, {"width": 4}).num_params == (
        flat_model("vgg11", (1, 32, 32), 10, {"width": 4}).num_params
    )


def test_a_users_function_may_ask_for_the_vocabulary() -> None:
    def network(vocabulary: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Embedding(vocabulary, 2), nn.Flatten(), nn.Linear(14, classes))

    assert flat_model(network, (7,), 3, vocabulary=50).num_params == 50 * 2 + 15 * 3
    with pytest.raises(UserError, match="fails on examples of shape"):
        flat_model(lambda: nn.Linear(7, 3), (7,), 3, vocabulary=50)  # numbers wanted, token ids given


def test_a_fresh_vgg_lets_signals_through() -> None:
    """Without He's weights, logits of different images would be all but equal."""
    model = flat_model("vgg11", CIFAR, 10, {"width": 16})
    logits = model.logits(model.init(0), torch.randn(8, *CIFAR, generator=torch.Generator().manual_seed(0)))
    assert logits.std(0).mean() > 0.05


def test_lstm_without_dropout_is_pytorchs() -> None:
    ours, theirs = LSTM(3, 4, 0.0, 0.0), nn.LSTM(3, 4, batch_first=True)
    theirs.load_state_dict({f"{name}_l0": value for name, value in ours.cell.state_dict().items()})
    x = torch.randn(5, 6, 3)
    torch.testing.assert_close(ours(x), theirs(x)[1][0][0])


def test_lstm_drops_the_same_at_every_token() -> None:
    """Ones are dropped or doubled; recurrent dropout touches the memory only."""
    network, seen = LSTM(8, 8, 0.5, 0.5).train(), []
    network.cell.register_forward_pre_hook(lambda _, inputs: seen.append((inputs[0], inputs[1][0])))
    torch.manual_seed(0)
    network(torch.ones(20, 5, 8))
    inputs = torch.stack([x for x, _ in seen])
    assert set(inputs.unique().tolist()) == {0.0, 2.0}
    assert (inputs == inputs[0]).all()
    forgotten = torch.stack([hidden == 0 for _, hidden in seen[1:]])  # the memory begins empty
    assert (forgotten == forgotten[0]).all()
    assert 0.3 < forgotten.float().mean() < 0.7


# On all engines ---------------------------------------------------------------------------------------------


def dealt(x: Tensor, vocabulary: int = 0) -> Federation:
    data = Dataset(x, torch.arange(len(x)) % 3, ("a", "b", "c"), vocabulary=vocabulary)
    return federate(data, partitioner("iid", clients=2), SplitPlan(test=0.2, validation=0.2))


def images(shape: tuple[int, ...], samples: int = 16) -> Federation:
    return dealt(torch.randn(samples, *shape, generator=torch.Generator().manual_seed(0)))


def tokens(samples: int = 24) -> Federation:
    return dealt(torch.randint(0, 20, (samples, 5), generator=torch.Generator().manual_seed(0)), 20)


SMALL: dict[str, tuple[Federation, dict[str, Any]]] = {
    "logistic": (images((4,)), {}),
    "mlp": (images((4,)), {"widths": [5, 5, 5]}),
    "lenet5": (images(FMNIST), {}),
    "fmnist_cnn": (images((1, 22, 22)), {}),
    "cifar_cnn": (images((3, 8, 8)), {}),
    "fedgwc_cnn": (images((3, 16, 16)), {}),
    "vgg11": (images(CIFAR), {"width": 4}),
    "vgg19": (images(CIFAR), {"width": 4}),
    "mobilenet_v2": (images(CIFAR), {}),
    "embedding_dense": (tokens(), {"dimension": 4}),
    "embedding_lstm": (tokens(), {"dimension": 4, "units": 3}),
}


@cache
def small_task(name: str) -> Task:
    """Its network is made and tried out once."""
    federation, settings = SMALL[name]
    return Task.of(federation, name, settings, cohort=2, local=Local(lr=0.01, steps=2, batch=4))


def agree(text: str, name: str, rounds: int = 1) -> None:
    task, method = small_task(name), Method.parse(text)
    slow = play(method, task, rounds)[0]
    fast = [play(method, task, rounds, engine=PoolEngine(task, workers))[0] for workers in (1, 2)]
    assert_same(*fast, f"{name} with more workers")
    together = play(method, task, rounds, engine=BatchedEngine(task, "cpu"))[0]
    for state in (fast[0], together):
        for ours, theirs in zip(state.groups, slow.groups, strict=True):
            torch.testing.assert_close(ours.weights.params, theirs.weights.params, rtol=0, atol=1e-5)
            torch.testing.assert_close(ours.weights.buffers, theirs.weights.buffers, rtol=0, atol=1e-5)
            assert ours.weights.params.isfinite().all()
    assert not torch.equal(slow.groups[0].weights.params, task.model.init(task.seed).params)


@pytest.mark.parametrize("name", MODELS.names())
def test_every_model_trains_alike_on_all_engines(name: str) -> None:
    agree("fedavg", name)


@pytest.mark.parametrize("name", ["cifar_cnn", "embedding_lstm", "embedding_dense"])
@pytest.mark.parametrize("text", ["scaffold", "fednova", "fedgwc", "fedprox(mu=0.1)+fedadam", "fedlc"])
def test_buffers_dropout_and_token_ids_under_other_methods(text: str, name: str) -> None:
    agree(text, name, rounds=2)


@pytest.mark.parametrize("name", ["cifar_cnn", "embedding_lstm"])
@pytest.mark.parametrize(
    "text", ["fedconcat(groups=1, rounds=1)", "cafa", "haccs(summary='P(X|y)')", "fedsoft"]
)
def test_methods_that_look_closer_at_models_and_data(text: str, name: str) -> None:
    task = small_task(name)
    state = play(Method.parse(text), task, 2, engine=PoolEngine(task))[0]
    assert state.groups[0].weights.params.isfinite().all()
