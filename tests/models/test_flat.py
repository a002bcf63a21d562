"""A network as a function of one vector: nothing is lost on the way, and buffers keep to their own rules."""

import pytest
import torch
from torch import nn

from fedcohort.models.flat import FEWER, MANY, Flat


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_counts():
    flat = Flat(network)
    assert flat.num_params == 3 * 4 + 4 + 4 + 4 + 4 * 2 + 2
    assert flat.num_buffers == 4 + 4 + 1
    assert flat.counters.tolist() == [False] * 8 + [True]
    assert flat.init(0).bytes == 4 * (flat.num_params + flat.num_buffers)


def test_round_trip():
    """The module with these weights computes what ``logits`` computes, and holds exactly these numbers."""
    flat, x = Flat(network), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    weights = flat.init(3)
    module = flat.module_with(weights)
    assert module(x).equal(flat.logits(weights, x))
    assert torch.cat([p.reshape(-1) for p in module.parameters()]).equal(weights.params)
    assert module[1].num_batches_tracked.dtype == torch.long


def test_module_is_a_copy():
    flat = Flat(network)
    weights = flat.init(0)
    before = weights.params.clone()
    with torch.no_grad():
        flat.module_with(weights)[0].weight.zero_()
    assert weights.params.equal(before)


def test_init_depends_on_the_seed_alone():
    flat = Flat(network)
    one = flat.init(1)
    torch.randn(7)  # whatever else was drawn meanwhile
    assert Flat(network).init(1).params.equal(one.params)
    assert not flat.init(2).params.equal(one.params)


def test_init_leaves_the_global_generator_alone():
    flat = Flat(network)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    flat.init(5)
    assert torch.rand(1).equal(expected)


def test_training_updates_running_statistics_in_place():
    """One batch with momentum .1: running mean = .1 * batch mean of the first layer, and the counter is 1."""
    flat, x = Flat(network), torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    weights = flat.init(0)
    hidden = flat.module_with(weights)[0](x)
    flat.logits(weights, x, training=True)
    torch.testing.assert_close(weights.buffers[:4], 0.1 * hidden.mean(0).detach())
    torch.testing.assert_close(weights.buffers[4:8], 0.9 + 0.1 * hidden.var(0).detach())
    assert weights.buffers[8] == 1


def test_evaluation_changes_nothing():
    flat, x = Flat(network), torch.randn(16, 3)
    weights = flat.init(0)
    before = weights.buffers.clone()
    flat.logits(weights, x)
    assert weights.buffers.equal(before)


@pytest.mark.parametrize(("layer", "most"), [(nn.Conv2d(1, 2, 1), FEWER), (nn.Flatten(), MANY)])
def test_many_examples_are_answered_a_few_at_a_time(layer, most):
    """So few of images that what a layer makes of them stays in the processor's cache."""
    flat, x = Flat(lambda: nn.Sequential(layer, nn.Flatten())), torch.rand(most + 3, 1, 2, 2)
    weights, sizes = flat.init(0), []
    flat.module[0].register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    assert flat.answers(weights, x).shape[0] == most + 3
    assert sizes == [most, 3]


def test_who_normalises_by_the_batch_in_evaluation_is_given_many():
    """A batch that is cut into pieces is other batches, and its last piece may be a single example."""
    layers = nn.Conv2d(1, 2, 1), nn.Flatten(), nn.BatchNorm1d(8, track_running_stats=False)
    flat, x = Flat(lambda: nn.Sequential(*layers)), torch.rand(FEWER + 1, 1, 2, 2)
    assert flat.answers(flat.init(0), x).equal(flat.logits(flat.init(0), x))


def test_buffers_combine_convexly_and_counters_take_the_largest():
    """Variances .02 and .5 by shares .05 and .95 give .476, never below the smaller one."""
    flat = Flat(network)
    rows = torch.tensor([[0.0] * 4 + [0.02] * 4 + [19.0], [1.0] * 4 + [0.5] * 4 + [3.0]])
    combined = flat.combine_buffers(rows, torch.tensor([0.05, 0.95]))
    assert combined.tolist() == pytest.approx([0.95] * 4 + [0.476] * 4 + [19.0])


def test_a_network_without_buffers():
    flat = Flat(lambda: nn.Linear(2, 2))
    assert flat.num_buffers == 0
    assert flat.combine_buffers(torch.zeros(3, 0), torch.full((3,), 1 / 3)).shape == (0,)
    assert not flat.needs_pairs


@pytest.mark.parametrize(
    ("layer", "pairs", "random"),
    [
        (nn.BatchNorm1d(3), True, False),
        (nn.GroupNorm(1, 3), False, False),
        (nn.Dropout(), False, False),
        (nn.AlphaDropout(), False, True),
    ],
    ids=["batch norm", "group norm", "dropout", "another dropout"],
)
def test_what_training_must_know(layer, pairs, random):
    flat = Flat(lambda: nn.Sequential(nn.Linear(3, 3), layer))
    assert (flat.needs_pairs, flat.draws_globally) == (pairs, random)


def test_a_dropout_layer_may_be_called_dropout():
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout, self.top = nn.Dropout(), nn.Linear(3, 3)

    flat = Flat(Network)
    assert flat.is_random
    assert not flat.draws_globally


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_draws_what_pytorch_would_draw(p):
    x = torch.ones(50)
    flat = Flat(lambda: nn.Sequential(nn.Dropout(p)))
    with flat.random_by(7):
        own = flat.module.train()(x)
    torch.manual_seed(7)
    assert own.equal(nn.Dropout(p)(x))
    assert flat.module.eval()(x).equal(x)


@pytest.mark.parametrize(
    "kind",
    [{"memory_format": torch.channels_last}, {"dtype": torch.float64}],
    ids=["channels last", "double"],
)
def test_dropout_draws_alike_whatever_memory_looks_like(kind):
    x, flat = torch.ones(3, 5, 7, 9), Flat(lambda: nn.Sequential(nn.Dropout(0.3)))
    with flat.random_by(7):
        usual = flat.module.train()(x)
    with flat.random_by(7):
        assert flat.module.train()(x.to(**kind)).gt(0).equal(usual.gt(0))


def tied() -> nn.Module:
    first, last = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    last.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), last)


def test_a_tensor_with_two_names_is_one_tensor():
    flat, x = Flat(tied), torch.arange(6.0).view(2, 3)
    assert flat.num_params == 9
    weights = flat.init(0)
    w = weights.params.view(3, 3)
    torch.testing.assert_close(flat.logits(weights, x), torch.tanh(x @ w.T) @ w.T)


def resting() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module[1].eval()
    return module


def test_no_layer_sleeps_while_the_others_train():
    """Given that way, or after an evaluation."""
    flat = Flat(resting)
    weights, x = flat.init(0), torch.randn(8, 2)
    for _ in range(2):
        before = weights.buffers.clone()
        flat.logits(weights, x, training=True)
        assert not weights.buffers.equal(before)
        flat.logits(weights, x)
