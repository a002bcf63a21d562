"""FairAvg: the plain mean of the movements."""

from dataclasses import replace

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.methods.fairavg import FairAvg
from fedcohort.runs.run import run
from fedcohort.testing import tiny_task
from support.toy import play_toy, position, toy_task, updates_of


def test_toy_round():
    """(1.38 + .458) / 2 = .919, though client 1 has three times the samples of client 0."""
    (state,) = play_toy("fairavg", (0, 1))
    assert position(state) == pytest.approx(0.919, abs=1e-6)


def test_only_those_who_answered_count():
    (state,) = play_toy("fairavg", (0, 1), lost=(1,))
    assert position(state) == pytest.approx(1.38, abs=1e-6)


def test_equal_sizes_make_it_fedavg():
    task = toy_task(sizes=(7, 7, 7))
    (ours,), (theirs,) = play_toy("fairavg", (0, 1), task=task), play_toy("fedavg", (0, 1), task=task)
    assert position(ours) == pytest.approx(position(theirs), abs=1e-7)


def test_everything_is_trained_on():
    """A fifth of each client's data is held out to validate, and trained on after all; tests stay apart."""
    task, method = tiny_task(), Method.parse("fairavg(everything=True)")
    apart, whole = task.federation, task.for_method(method).federation
    assert whole.train.sizes.equal(apart.train.sizes + apart.validation.sizes)
    assert not whole.validation.sizes.any()
    assert whole.test is apart.test
    for client in range(8):
        rows = torch.cat([apart.train.rows(client), apart.validation.rows(client)])
        assert sorted(whole.train.rows(client).tolist()) == sorted(rows.tolist())
    assert task.for_method(Method.parse("fairavg")).federation is apart
    assert run(method, task, 1).rows != run("fairavg", task, 1).rows


def test_validation_data_of_another_tensor_join():
    federation = tiny_task().federation
    held = federation.validation
    moved = replace(federation, validation=replace(held, x=held.x.clone(), y=held.y.clone()))
    ours, theirs = moved.without_validation().train, federation.without_validation().train
    for client in range(8):
        assert all(a.equal(b) for a, b in zip(ours.examples(client), theirs.examples(client), strict=True))


def test_validation_data_of_another_tensor_keep_their_examples():
    """Each client's are behind those it trains on, and are what they were."""
    federation = tiny_task().federation
    held = federation.validation
    own = replace(held, x=held.x[held.index] + 9, y=held.y[held.index], index=torch.arange(len(held.index)))
    joined = replace(federation, validation=own).without_validation().train
    for client in range(8):
        size = int(federation.train.sizes[client])
        assert joined.examples(client)[0][size:].equal(own.examples(client)[0])


def test_statistics_may_be_averaged_evenly():
    updates = updates_of([0, 1], size=torch.tensor([10, 30]))
    assert FairAvg().statistics(updates.even, updates).tolist() == [0.25, 0.75]
    assert FairAvg(bn="even").statistics(updates.even, updates).tolist() == [0.5, 0.5]
