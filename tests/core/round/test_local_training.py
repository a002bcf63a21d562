"""The local training loop: which batches, which randomness."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedcohort.core.profile import Local
from fedcohort.core.records import View
from fedcohort.core.round.local_training import batches, client_round, prepare
from fedcohort.methods.plain import Plain
from fedcohort.methods.scaffold import Scaffold
from fedcohort.models.flat import Flat
from fedcohort.util.keyed import generator


def plan(size: int, local: Local, smallest: int = 1, steps: int | None = None) -> list[Tensor]:
    steps = local.steps_for(size) if steps is None else steps
    return batches(torch.arange(size), steps, local, smallest, generator(0, "test"))


def test_the_learning_rate_falls_every_so_many_rounds():
    local = Local(lr=0.8, decay=0.5, decay_every=3)
    assert [local.lr_at(number) for number in range(7)] == [0.8] * 3 + [0.4] * 3 + [0.2]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3))
def test_every_epoch_visits_everything_once(size, batch, epochs):
    got = plan(size, Local(batch=batch, epochs=epochs))
    assert Counter(torch.cat(got).tolist()) == dict.fromkeys(range(size), epochs)
    assert all(len(rows) <= batch for rows in got)


def test_epochs_are_shuffled_anew():
    first, second = plan(20, Local(batch=20, epochs=2))
    assert sorted(first.tolist()) == sorted(second.tolist())
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(
    ("size", "drop_last", "sizes"),
    [
        (10, False, [4, 4, 2]),
        (10, True, [4, 4]),
        (8, True, [4, 4]),
        (3, False, [3]),
        (3, True, [3]),  # never nothing: a client smaller than a batch has one short batch
        (1, True, [1]),
    ],
)
def test_sizes_of_batches(size, drop_last, sizes):
    assert [len(rows) for rows in plan(size, Local(batch=4, drop_last=drop_last))] == sizes


def test_five_hundred_samples_by_sixty_four():
    """7 batches without the short one, 8 with it."""
    assert Local(batch=64, drop_last=True).steps_for(500) == 7
    assert Local(batch=64).steps_for(500) == 8


def test_a_budget_in_steps_ignores_epochs():
    got = plan(10, Local(batch=4, steps=7, epochs=100))
    assert [len(rows) for rows in got] == [4, 4, 2, 4, 4, 2, 4]


@pytest.mark.parametrize(("epochs", "steps"), [(1.0, 3), (0.5, 2), (0.1, 1), (2.5, 8)])
def test_fractions_of_an_epoch(epochs, steps):
    """Three batches an epoch: round(1.5) = 2, at least 1, round(7.5) = 8."""
    assert Local(batch=4, epochs=epochs).steps_for(10) == steps


def test_batch_norm_never_sees_a_single_sample():
    """5 = 2 + 2 + 1: the single one is left out, and the three steps are taken from the next shuffle."""
    assert [len(rows) for rows in plan(5, Local(batch=2), smallest=2)] == [2, 2, 2]
    assert plan(1, Local(batch=2), smallest=2) == []
    assert [len(rows) for rows in plan(5, Local(batch=2), smallest=1)] == [2, 2, 1]


X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 2


def train(
    flat: Flat, *key: int, seed: int = 0, objective: object = None, size: int = 12
) -> tuple[Tensor, dict, Tensor]:
    """One client's parameters, what went up, and its losses."""
    local = Local(lr=0.1, batch=4, epochs=2)
    down = {**flat.init(0)._asdict(), "c": torch.zeros(flat.num_params)}
    view = View(
        down, {"c": torch.zeros(flat.num_params)}, torch.tensor([6, 6]), size, 0.1, local.steps_for(size)
    )
    part = objective or Plain()
    up, _, trained = client_round(prepare(part, flat, local, X[:size], Y[:size], view, (seed, *key)))
    return trained.weights.params, up, trained.trace


def linear() -> nn.Module:
    return nn.Linear(3, 2)


def dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))


def test_batches_depend_on_seed_round_and_client():
    first = train(Flat(linear), 0, 1)[0]
    assert train(Flat(linear), 0, 1)[0].equal(first)
    for other in (train(Flat(linear), 1, 1), train(Flat(linear), 0, 2), train(Flat(linear), 0, 1, seed=1)):
        assert not other[0].equal(first)


def test_what_goes_up_is_the_movement():
    flat = Flat(linear)
    params, up, trace = train(Flat(linear), 0, 1)
    assert up["delta"].equal(params - flat.init(0).params)
    assert trace.shape == (6,)


@pytest.mark.parametrize("objective", [Plain(), Scaffold(option="I")], ids=["plain", "one more pass"])
def test_dropout_is_keyed_and_leaves_the_global_generator_alone(objective):
    """The extra pass of SCAFFOLD's option I goes through dropout too."""
    flat = Flat(dropout)  # templates draw; training must not
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    _, first, _ = train(flat, 0, 1, objective=objective)
    assert torch.rand(1).equal(expected)
    torch.manual_seed(2)
    _, second, _ = train(flat, 0, 1, objective=objective)
    assert all(first[key].equal(second[key]) for key in first)
    _, other, _ = train(flat, 0, 2, objective=objective)
    assert all(not other[key].equal(first[key]) for key in first)


def test_training_leaves_what_was_sent_untouched():
    flat, local = Flat(lambda: nn.Sequential(linear(), nn.BatchNorm1d(2))), Local(lr=0.1, batch=4)
    down = flat.init(0)._asdict()
    before = {key: value.clone() for key, value in down.items()}
    view = View(down, {}, torch.tensor([6, 6]), 12, 0.1, 3)
    _, _, trained = client_round(prepare(Plain(), flat, local, X, Y, view, (0, 0, 0)))
    assert all(down[key].equal(before[key]) for key in down)
    assert not trained.weights.buffers.equal(before["buffers"])


def test_a_client_with_one_sample_and_batch_norm_takes_no_step():
    def build() -> nn.Module:
        return nn.Sequential(linear(), nn.BatchNorm1d(2))

    params, up, trace = train(Flat(build), 0, 1, size=1)
    assert len(trace) == 0
    assert not up["delta"].any()
    assert params.equal(Flat(build).init(0).params)
