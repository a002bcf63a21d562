"""The centralised reference: one place, all rows, as many passes as the federation would make."""

import pytest
import torch
import torch.nn.functional as F

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.round.local_training import batches
from fedcohort.testing import play, tiny_task
from fedcohort.util.keyed import generator
from support.toy import toy_task

METHOD = Method.parse("centralised")


def test_it_is_sgd_on_the_pooled_rows():
    """The same mini-batches through torch.optim.SGD give the same network."""
    task = tiny_task(local=Local(lr=0.1, epochs=2, batch=16), cohort=1.0)
    state, _ = play(METHOD, task, 1)
    module = task.model.module_with(task.model.init(task.seed)).train()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    rows = task.federation.train.index
    steps = 2 * -(-len(rows) // 16)
    for batch in batches(torch.arange(len(rows)), steps, task.local, 1, generator(task.seed, 0, 0, "batch")):
        loss = F.cross_entropy(
            module(task.federation.train.x[rows[batch]]), task.federation.train.y[rows[batch]]
        )
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    ours = task.model.module_with(state.groups[0].weights)
    for mine, theirs in zip(ours.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("cohort", "epochs"), [(1.0, 5.0), (0.5, 2.5)])
def test_budget_is_the_federations(cohort, epochs):
    """T rounds of a share q of clients with E epochs each pass over the data T q E times."""
    task = tiny_task(local=Local(epochs=5), cohort=cohort)
    assert task.for_method(METHOD).local.epochs == pytest.approx(epochs)


def test_a_budget_in_steps_is_that_of_the_whole_cohort():
    task = tiny_task(local=Local(steps=3), cohort=4)
    assert task.for_method(METHOD).local.steps == 12


def test_the_examples_travel_once():
    """Toy rows are two floats and a label: 60 rows * 16 bytes, and nothing after."""
    state, _ = play(METHOD, toy_task(), 2)
    assert (state.bytes_up, state.bytes_down) == (60 * (2 * 4 + 8), 0)
