"""SCAFFOLD: gradients gain c - c_k; c_k becomes the gradient the client saw; c stays the mean of all c_k."""

from dataclasses import dataclass

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Memory, Trained, View
from fedcohort.core.state import State
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.scaffold import Scaffold
from fedcohort.models.flat import Weights
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import Cohorts, Regrouped, play_method, play_toy, position, profile_of, toy_task


def server_c(state: State, group: int = 0) -> float:
    return float(state.groups[group].known("optimiser")["c"])


def client_c(state: State) -> dict[int, float]:
    return {client: float(memory["c"]) for client, memory in state.clients.items()}


def test_first_round():
    """With c = c_k = 0 clients move as in plain SGD: deltas .38 and -.542.

    c_0 = -.38 / .2 = -1.9, c_1 = .542 / .3 = 1.80667; even mean x = 1 + (.38 - .542) / 2 = .919;
    c = (-1.9 + 1.80667) / 3 = -.0311111 over all three clients, not over the two that trained.
    """
    (state,) = play_toy("scaffold", (0, 1))
    assert position(state) == pytest.approx(0.919, abs=1e-6)
    assert client_c(state) == pytest.approx({0: -1.9, 1: 1.8066666667}, abs=1e-5)
    assert server_c(state) == pytest.approx(-0.0311111111, abs=1e-6)


def test_second_round():
    """Client 1 corrects by c - c_1 = -1.83778, client 2 (new: c_2 = 0) by c = -.03111.

    Client 1: g = 1.919 - 1.83778, three steps from .919 give .8969888. Client 2, two steps: .9403011.
    """
    _, state = play_toy("scaffold", (0, 1), (1, 2))
    assert position(state) == pytest.approx(0.9186449444, abs=1e-6)
    assert client_c(state) == pytest.approx({0: -1.9, 1: 1.9111485185, 2: -0.0753944444}, abs=1e-5)
    assert server_c(state) == pytest.approx(-0.0214153086, abs=1e-6)


def test_option_one_takes_the_gradient_at_the_sent_model():
    """c_k = x - b_k at x = 1: -2 and 2."""
    (state,) = play_toy("scaffold(option='I')", (0, 1))
    assert client_c(state) == pytest.approx({0: -2.0, 1: 2.0}, abs=1e-6)
    assert server_c(state) == pytest.approx(0.0, abs=1e-6)
    assert position(state) == pytest.approx(0.919, abs=1e-6)


def test_c_is_the_mean_of_all_c_k():
    """An invariant from zero on, whoever takes part; clients that never trained count as zero."""
    for state in play_toy("scaffold", (0, 1), (1, 2), (2,), (0, 2), (0, 1, 2)):
        assert server_c(state) == pytest.approx(sum(client_c(state).values()) / 3, abs=1e-5)


def test_a_lost_client_writes_nothing():
    """Client 1 fails in round 1: x = 1.38, only c_0 is written, c = -1.9 / 3."""
    (state,) = play_toy("scaffold", (0, 1), lost=(1,))
    assert position(state) == pytest.approx(1.38, abs=1e-6)
    assert client_c(state) == pytest.approx({0: -1.9}, abs=1e-5)
    assert server_c(state) == pytest.approx(-1.9 / 3, abs=1e-6)


def test_weighted_averages_movements_by_samples():
    """x = .6885 as FedAvg; c stays an even mean."""
    (state,) = play_toy("scaffold(weighted=True)", (0, 1))
    assert position(state) == pytest.approx(0.6885, abs=1e-6)
    assert server_c(state) == pytest.approx(-0.0311111111, abs=1e-6)


def test_server_lr():
    """1 + .5 * (.919 - 1) = .9595; c does not depend on it."""
    (state,) = play_toy("scaffold(server_lr=0.5)", (0, 1))
    assert position(state) == pytest.approx(0.9595, abs=1e-6)
    assert server_c(state) == pytest.approx(-0.0311111111, abs=1e-6)


def test_the_divisor_follows_the_learning_rate_of_the_round():
    """At constant gradient (one step each) c_k is that gradient, whatever the schedule.

    Round 2 at x, one step: delta = -lr (g + c - c_k), so c_k+ = c_k - c - delta / lr = g = x - b_k.
    """
    local = Local(lr=0.1, batch=100, decay=0.5)
    first, second = play_toy("scaffold", (0, 1), task=toy_task(steps=(1, 1, 1), local=local), rounds=2)
    x = position(first)
    assert client_c(second) == pytest.approx({0: x - 3, 1: x + 1}, abs=1e-5)


@dataclass(frozen=True)
class PaperDivisor(Scaffold):
    """The paper's option II to the letter: divides by lr * steps, also under momentum."""

    name = "paper_divisor"

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        return super().finish(begun, trained._replace(reach=view.lr * trained.steps), view)


def skewed(momentum: float, lr: float):
    """Curvature 1 at b = 3 and curvature 3 at b = -1: 1 * (0 - 3) + 3 * (0 + 1) = 0, so the optimum is 0."""
    local = Local(lr=lr, momentum=momentum, batch=100)
    return toy_task(b=(3, -1), sizes=(10, 10), steps=(5, 8), curvature=(1, 3), local=local)


@pytest.mark.parametrize(("lr", "rounds"), [(0.005, 80), (0.01, 40)])
def test_exact_under_momentum(lr, rounds):
    """Dividing by the reach of the optimiser finds the joint optimum, though clients take 5 and 8 steps."""
    state = play_toy("scaffold", (0, 1), task=skewed(0.9, lr), rounds=rounds)[-1]
    assert position(state) == pytest.approx(0, abs=1e-4)
    assert client_c(state) == pytest.approx({0: -3, 1: 3}, abs=1e-2)


def test_weighted_is_exact_too():
    state = play_toy("scaffold(weighted=True)", (0, 1), task=skewed(0.9, 0.01), rounds=40)[-1]
    assert position(state) == pytest.approx(0, abs=1e-4)


def test_fedavg_is_biased_where_scaffold_is_exact():
    state = play_toy("fedavg", (0, 1), task=skewed(0.9, 0.01), rounds=40)[-1]
    assert abs(position(state)) > 0.1


def test_the_papers_divisor_diverges_under_momentum():
    """The reason for the reach: lr * steps is too small a divisor, c_k grows by a factor each round."""
    exact = Method.of(Cohorts(((0, 1),)), PaperDivisor())
    without = play_method(exact, skewed(0.0, 0.01), 50)[-1]
    assert position(without) == pytest.approx(0, abs=1e-2)
    largest = max(abs(c) for c in client_c(play_method(exact, skewed(0.9, 0.01), 20)[-1]).values())
    assert not largest < 1e3


def test_without_momentum_niid_is_the_same():
    """x - lr (g + c - c_k) either way, and lr * steps is the reach."""
    ours, theirs = (play_toy(text, (0, 1), (1, 2), (0, 2)) for text in ("scaffold(mode='niid')", "scaffold"))
    for one, other in zip(ours, theirs, strict=True):
        assert position(one) == pytest.approx(position(other), abs=1e-6)
        assert client_c(one) == pytest.approx(client_c(other), abs=1e-5)


@pytest.mark.parametrize(("lr", "bias"), [(0.002, -0.058), (0.01, -0.394)])
def test_niid_is_biased_under_momentum(lr, bias):
    """Two quadratics of curvature 1 and 3, momentum .9, 25 steps: it comes to rest here, the optimum is 0."""
    local = Local(lr=lr, momentum=0.9, batch=100)
    task = toy_task(b=(3, -1), sizes=(10, 10), steps=(25, 25), curvature=(1, 3), local=local)
    state = play_toy("scaffold(mode='niid')", (0, 1), task=task, rounds=30)[-1]
    assert position(state) == pytest.approx(bias, abs=6e-4)


@pytest.mark.parametrize("optimiser", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_all_engines_correct_after_the_step(optimiser):
    """Two rounds, so that c and c_k are not zero any more."""
    task, method = tiny_task(local=Local(lr=0.1, batch=8, **optimiser)), Method.parse("scaffold(mode='niid')")
    slow, *fast = (
        play(method, task, 2, engine=engine(task))[0]
        for engine in (ReferenceEngine, PoolEngine, BatchedEngine)
    )
    for state in fast:
        torch.testing.assert_close(state.groups[0].weights.params, slow.groups[0].weights.params)


def test_the_first_round_by_samples_is_fedavg_bit_for_bit():
    ours, theirs = (play_toy(text, (0, 1))[0] for text in ("scaffold(weighted=True)", "fedavg"))
    assert position(ours) == position(theirs)


def test_adam_needs_option_one():
    adam = Local(optimiser="adam", lr=0.1, batch=100)
    with pytest.raises(UserError, match=r"scaffold\(option='I'\)"):
        play_toy("scaffold", (0, 1), task=toy_task(local=adam))
    (state,) = play_toy("scaffold(option='I')", (0, 1), task=toy_task(local=adam))
    assert client_c(state) == pytest.approx({0: -2.0, 1: 2.0}, abs=1e-6)


def test_a_split_recomputes_c_as_the_mean_of_its_members():
    """Round 1 leaves c = (-1.9, 1.80667, 0); then {0, 2} and {1} part, each with the mean of its own."""
    (state,) = play_toy("scaffold", (0, 1), grouping=Regrouped(((0, 1, 0),)))
    assert server_c(state, 0) == pytest.approx(-1.9 / 2, abs=1e-5)
    assert server_c(state, 1) == pytest.approx(1.8066666667, abs=1e-5)
    assert position(state, 0) == position(state, 1) == pytest.approx(0.919, abs=1e-6)


def test_an_empty_client_does_not_count_as_a_member_after_a_split():
    """Client 3 holds nothing: it never trains and is no part of the mean, before a split or after."""
    task = toy_task(b=(3, -1, 1, 0), sizes=(10, 30, 20, 0), steps=(2, 3, 2, 2), curvature=(1, 1, 1, 1))
    (state,) = play_toy("scaffold", (0, 1), task=task, grouping=Regrouped(((0, 1, 0, 0),)))
    assert server_c(state, 0) == pytest.approx(-1.9 / 2, abs=1e-5)


def test_control_variates_start_at_zero():
    part, profile = Scaffold(), profile_of([[1, 1]])
    assert part.init_client(profile)["c"].equal(torch.zeros(1))
    assert part.init_server(profile)["c"].equal(torch.zeros(1))


def test_c_counts_the_members_of_its_group():
    """{0, 2} and {1} part after round 1; in round 2 all train, and each c stays the mean of its own."""
    state = play_toy("scaffold", (0, 1), (0, 1, 2), grouping=Regrouped(((0, 1, 0),)))[-1]
    own = client_c(state)
    assert server_c(state, 0) == pytest.approx((own[0] + own[2]) / 2, abs=1e-5)
    assert server_c(state, 1) == pytest.approx(own[1], abs=1e-5)
