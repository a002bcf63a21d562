"""IFCA: each client trains the model that fits it best; a group's model is the mean of those who chose it.

Reference vectors asserted here: ifca, ifca_grad.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from fedcohort.core.evaluate import serving, settle
from fedcohort.core.faults import Faults
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.round.loop import start, step
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.ifca import IFCA
from fedcohort.models.flat import Flat
from fedcohort.testing import accuracy, play, tiny_task
from support.plane import Dictated, centres, plane_round, plane_task
from support.toy import two_languages

FEDAVG = Method.parse("fedavg")
LOSSES = [[0.9, 0.4], [0.3, 0.7], [0.5, 0.5], [0.2, 1.0]]
ENDS = [[1.0, 1.0], [2.0, 0.0], [3.0, 3.0], [0.0, 2.0]]


def engine(**script: object) -> Dictated:
    return Dictated(plane_task([10, 30, 20, 40]), **{"ends": ENDS, "losses_of": LOSSES, **script})  # type: ignore[arg-type]


def test_clients_choose_the_lowest_loss_and_the_first_of_equals():
    state = plane_round("ifca(groups=2)", engine(), [[0.0, 0.0], [0.0, 0.0]])
    assert state.grouping["group"].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "first"), [("ifca(groups=2)+fairavg", [5 / 3, 5 / 3]), ("ifca(groups=2)", [4 / 3, 14 / 9])]
)
def test_a_model_is_the_mean_of_those_who_chose_it(text, first):
    """Clients 1, 2, 3 end at (2, 0), (3, 3), (0, 2): mean (5, 5) / 3; by 30, 20, 40 samples (12, 14) / 9."""
    state = plane_round(text, engine(), [[0.5, 0.0], [7.0, 7.0]])
    assert centres(state)[0] == pytest.approx(first)
    assert centres(state)[1] == pytest.approx([1.0, 1.0])


def test_the_gradient_variant_divides_by_the_whole_cohort():
    """lr .1, g = (1, 0), (0, 1), (1, 1), (2, 0): theta_0 = -.1 (3, 2) / 4, theta_1 = 1 - .1 (1, 0) / 4."""
    starts = [1.0, 0.0, 0.0, 0.0]  # where each client's chosen model is, in both coordinates
    gradients = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]
    ends = [[at - 0.1 * g for g in slope] for at, slope in zip(starts, gradients, strict=True)]
    text = "ifca(groups=2, average='gradient')+fairavg"
    state = plane_round(text, engine(ends=ends), [[0.0, 0.0], [1.0, 1.0]])
    assert centres(state)[0] == pytest.approx([-0.075, -0.05])
    assert centres(state)[1] == pytest.approx([0.975, 1.0])


def test_a_model_that_nobody_chose_stays():
    state = plane_round(
        "ifca(groups=3)", engine(losses_of=[[1.0, 2.0, 3.0]] * 4), [[0.0, 0.0], [4.0, 5.0], [6.0, 7.0]]
    )
    assert centres(state)[1:] == [[4.0, 5.0], [6.0, 7.0]]


def test_a_model_whose_loss_is_not_a_number_is_not_chosen():
    assert int(IFCA().answer(torch.tensor([[torch.nan, 1.0], [9.0, 9.0]]))) == 1


def test_models_start_apart():
    """Equal models would tie everywhere, and all clients would choose the first for ever."""
    method, task = Method.parse("ifca(groups=3)"), tiny_task()
    params = [group.weights.params for group in start(method, task, task.profile(method)).groups]
    assert params[0].equal(task.model.init(task.seed).params)
    assert not any(params[a].equal(params[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_only_the_cohort_is_asked_and_it_is_drawn_from_everybody():
    """Two of four clients a round, although the clients are in two groups."""
    script = Dictated(plane_task([10] * 4, cohort=2), ENDS, LOSSES)
    groups = torch.tensor([0, 1, 1, 1])
    plane_round("ifca(groups=2)", script, [[0.0, 0.0], [1.0, 1.0]], group=groups)
    assert [len(asked) for asked in script.asked] == [2]


def test_between_choices_clients_keep_their_group_and_save_the_download():
    """Round 1 of every=2 asks only who was never asked; then J models travel to nobody else."""
    script = Dictated(plane_task([10] * 4), ENDS, LOSSES)
    method = Method.parse("ifca(groups=2, every=2)")
    states, profile = [start(method, script.task, script.task.profile(method))], script.task.profile(method)
    for _ in range(3):
        states.append(step(method, states[-1], script.task, profile, script)[0])
    assert [sorted(asked) for asked in script.asked] == [[0, 1, 2, 3], [0, 1, 2, 3]]  # rounds 0 and 2
    sent = [new.bytes_down - old.bytes_down for old, new in pairwise(states)]
    assert sent == [4 * 2 * 8, 4 * 8, 4 * 2 * 8]
    unknown = replace(states[1], grouping={**states[1].grouping, "chose": torch.tensor([1, 0, 1, 1]).bool()})
    step(method, unknown, script.task, profile, script)
    assert script.asked[-1] == [1]


def test_one_group_is_fedavg():
    ours, theirs = (play(Method.parse(text), tiny_task(), 3)[0] for text in ("ifca(groups=1)", "fedavg"))
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)


class Pair(nn.Sequential):
    """A trunk of one weight and a last layer of one."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))


def test_a_common_trunk_is_the_mean_of_everybody():
    """Client 0 alone, 1 to 3 together; ends of the first weight 1, 2, 3, 0 by 10, 30, 20, 40 samples: 1.3.

    Last layers are each group's own: 1, and (0, 3, 2) by 30, 20, 40: 14 / 9. Model 2, which nobody chose,
    keeps its last layer and gets the trunk.
    """
    losses = [[*own, 9.0] for own in LOSSES]
    script = engine(losses_of=losses)
    script.task = replace(script.task, model=Flat(Pair))
    state = plane_round("ifca(groups=3, sharing='trunk')", script, [[0.5, 0.0], [0.5, 7.0], [0.5, 8.0]])
    assert [centre[0] for centre in centres(state)] == pytest.approx([1.3] * 3)
    assert [centre[1] for centre in centres(state)] == pytest.approx([14 / 9, 1.0, 8.0])
    assert state.bytes_down == 4 * 3 * (4 + 4)  # to four clients: three models, each with the trunk


def test_a_common_trunk_of_gradients_divides_by_the_cohort_once():
    """From 0 the trunk goes to the mean of .1, .2, .3, 0; last layers to (.2 + .3 + 0) / 4 and .1 / 4."""
    script = engine(ends=[[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.0, 0.0]], losses_of=LOSSES)
    script.task = replace(plane_task([10] * 4), model=Flat(Pair))
    text = "ifca(groups=2, sharing='trunk', average='gradient')+fairavg"
    state = plane_round(text, script, [[0.0, 0.0], [0.0, 0.0]])
    assert [centre[0] for centre in centres(state)] == pytest.approx([0.15] * 2)
    assert [centre[1] for centre in centres(state)] == pytest.approx([0.5 / 4, 0.1 / 4])


def test_models_with_a_common_trunk_start_with_one():
    method, task = Method.parse("ifca(groups=3, sharing='trunk')"), tiny_task()
    first, second, _ = (g.weights.params for g in start(method, task, task.profile(method)).groups)
    own = task.model.within(["3"])  # Flatten, Linear, ReLU, Linear
    assert first[~own].equal(second[~own])
    assert not first[own].equal(second[own])


def test_bytes_are_all_models_down_and_one_model_and_a_number_up():
    """Four clients, three models of two numbers: 4 * 3 * 8 down, 4 * (40 + 8 + 20 + 8) up."""
    state = plane_round("ifca(groups=3)", engine(losses_of=[[1.0, 2.0, 3.0]] * 4), [[0.0, 0.0]] * 3)
    assert (state.bytes_up, state.bytes_down) == (4 * 76, 96)


def test_who_never_trained_chooses_its_model_when_it_is_evaluated():
    method, script = Method.parse("ifca(groups=2)"), engine()
    state = start(method, script.task, script.task.profile(method))
    settled = settle(method, state, script.task.profile(method), script)
    assert [clients.tolist() for _, clients in serving(method, settled)] == [[1, 2, 3], [0]]
    assert state.grouping["group"].tolist() == [0] * 4


def test_planted_groups_are_found():
    """The second half of the clients call every class by another name; both models learn one language."""
    task = two_languages(tiny_task(clients=12, cohort=6, local=Local(lr=0.2, epochs=2, batch=8)))
    method = Method.parse("ifca(groups=2)")
    state, _ = play(method, task, 20)
    group = settle(method, state, task.profile(method), ReferenceEngine(task)).grouping["group"].tolist()
    assert group in ([0] * 6 + [1] * 6, [1] * 6 + [0] * 6)
    assert accuracy(method, task, state) > 0.95 > 0.7 > accuracy(FEDAVG, task, play(FEDAVG, task, 20)[0])


def test_who_is_lost_has_chosen_nothing():
    state, _ = play(Method.parse("ifca(groups=2)"), tiny_task(faults=Faults(dropout=1.0)), 2)
    assert not state.grouping["chose"].any()
