"""FedDyn: clients minimise f_k(x) - <slope_k, x> + alpha |x - sent|^2 / 2; the server adds -h / alpha."""

import pytest
import torch

from fedcohort.core.evaluate import adapt, serving
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.state import State
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.feddyn import FedDyn
from support.toy import Cohorts, Regrouped, play_method, play_toy, position, toy_task


def slopes(state: State) -> dict[int, float]:
    return {client: float(memory["slope"]) for client, memory in state.clients.items()}


def server_h(state: State, group: int = 0) -> float:
    return float(state.groups[group].known("optimiser")["h"])


def served(part: FedDyn, state: State) -> float:
    ((model, _),) = serving(Method.of(part), state)
    return float(model["params"])


def test_two_rounds():
    """alpha = .5. Round 1: slopes are 0, so clients see g = x - b + .5 (x - 1) and reach 1.37 and .4855.

    slope_0 = -.5 * .37, slope_1 = .5 * .5145, h = -(.5 / 3)(.37 - .5145) = .02408333 over all three clients,
    x = .92775 - h / .5 = .8795833. Round 2 with clients 1 and 2 goes on from there.
    """
    first, second = play_toy("feddyn(alpha=0.5)", (0, 1), (1, 2))
    assert slopes(first) == pytest.approx({0: -0.185, 1: 0.25725}, abs=1e-6)
    assert server_h(first) == pytest.approx(0.0240833333, abs=1e-6)
    assert position(first) == pytest.approx(0.8795833333, abs=1e-6)
    assert served(FedDyn(alpha=0.5), first) == pytest.approx(0.92775, abs=1e-6)
    assert slopes(second) == pytest.approx({0: -0.185, 1: 0.465922625, 2: -0.0111385417}, abs=1e-6)
    assert server_h(second) == pytest.approx(0.0899280278, abs=1e-6)
    assert position(second) == pytest.approx(0.5021931944, abs=1e-6)
    assert served(FedDyn(alpha=0.5), second) == pytest.approx(0.68204925, abs=1e-6)


def test_alpha_scaled_by_size():
    """alpha = .5 and sizes 10, 30 around a mean of 20 pull with 1 and 1/3; the server's step stays the same.

    Client 0: 1 -> 1.2 -> 1.2 + .1 (1.8 - .2) = 1.36. Client 1: 1 -> .8 -> .8 - .1 (1.8 - .2 / 3) = .6266667
    -> .6266667 - .1 (1.6266667 - .3733333 / 3) = .4764444. h = -.5 (.36 - .5235556) / 3, and
    x = .9182222 - h / .5.
    """
    (state,) = play_toy("feddyn(alpha=0.5, scaled=True)", (0, 1))
    assert slopes(state) == pytest.approx({0: -0.18, 1: 0.2617777778}, abs=1e-6)
    assert server_h(state) == pytest.approx(0.0272592593, abs=1e-6)
    assert position(state) == pytest.approx(0.8637037037, abs=1e-6)


def test_scaled_and_plain_agree_where_sizes_are_equal():
    task = toy_task(sizes=(20, 20, 20))
    scaled, plain = (
        play_toy(f"feddyn(alpha=0.5, scaled={scaled})", (0, 1), (1, 2), task=task)[-1]
        for scaled in (True, False)
    )
    assert position(scaled) == position(plain)
    assert scaled.bytes_down == plain.bytes_down + 4 * 4  # the mean size, to two clients in two rounds


def test_the_mean_of_the_first_round_is_that_of_fedprox():
    """Slopes are zero, so the pull towards the sent model is all there is."""
    (state,) = play_toy("feddyn(alpha=0.5)", (0, 1))
    (pulled,) = play_toy("fedprox(mu=0.5)+fairavg", (0, 1))
    assert served(FedDyn(alpha=0.5), state) == position(pulled)


def test_the_sent_model_answers_if_wanted():
    (state,) = play_toy("feddyn(alpha=0.5)", (0, 1))
    assert served(FedDyn(alpha=0.5, evaluate="sent"), state) == position(state)


def test_everybodys_latest_models_answer_if_wanted():
    """Clients' models after round 1: 1.37, .4855 and, never trained, 1; after round 2: 1.37, .4622, .9019."""
    part = FedDyn(alpha=0.5, evaluate="all")
    first, second = play_toy("feddyn(alpha=0.5, evaluate='all')", (0, 1), (1, 2))
    assert served(part, first) == pytest.approx((1.37 + 0.4855 + 1) / 3, abs=1e-6)
    assert served(part, second) == pytest.approx((1.37 + 0.4622380833 + 0.9018604167) / 3, abs=1e-6)
    plain = play_toy("feddyn(alpha=0.5)", (0, 1), (1, 2))
    assert [position(state) for state in (first, second)] == [position(state) for state in plain]


def test_with_everybody_in_the_cohort_both_means_are_one():
    everybody, cohort = (
        served(
            FedDyn(alpha=0.5, evaluate=which),
            play_toy(f"feddyn(alpha=0.5, evaluate='{which}')", (0, 1, 2))[0],
        )
        for which in ("all", "avg")
    )
    assert everybody == pytest.approx(cohort, abs=1e-6)


def test_what_the_server_must_keep_of_everybody_is_counted():
    profile = toy_task().profile(Method.parse("feddyn"))
    assert FedDyn().server_bytes(profile) == 0
    assert FedDyn(evaluate="all").server_bytes(profile) == 2 * 4 * 3


def test_before_the_first_round_the_start_answers():
    method = Method.of(Cohorts(((),)), FedDyn())
    (state,) = play_method(method, toy_task(), 1)
    assert served(FedDyn(), state) == position(state) == 1.0


def test_h_is_the_mean_of_all_slopes():
    for state in play_toy("feddyn(alpha=0.5)", (0, 1), (1, 2), (2,), (0, 2)):
        assert server_h(state) == pytest.approx(sum(slopes(state).values()) / 3, abs=1e-5)


def test_it_finds_the_joint_optimum_where_fedavg_does_not():
    """Curvature 1 at 3 and 3 at -1: the optimum is 0, though clients take 5 and 8 steps."""
    task = toy_task(b=(3, -1), sizes=(10, 10), steps=(5, 8), curvature=(1, 3))
    exact = play_toy("feddyn(alpha=1)", (0, 1), task=task, rounds=60)[-1]
    biased = play_toy("fairavg", (0, 1), task=task, rounds=60)[-1]
    assert position(exact) == pytest.approx(0, abs=1e-3)
    assert abs(position(biased)) > 0.05


def test_a_lost_client_writes_nothing():
    (state,) = play_toy("feddyn(alpha=0.5)", (0, 1), lost=(1,))
    assert slopes(state) == pytest.approx({0: -0.185}, abs=1e-6)
    assert server_h(state) == pytest.approx(-0.185 / 3, abs=1e-6)


def test_a_split_recomputes_h_as_the_mean_of_its_members():
    (state,) = play_toy("feddyn(alpha=0.5)", (0, 1), grouping=Regrouped(((0, 1, 0),)))
    assert server_h(state, 0) == pytest.approx(-0.185 / 2, abs=1e-6)
    assert server_h(state, 1) == pytest.approx(0.25725, abs=1e-6)
    assert torch.equal(*(group.known("optimiser")["lag"] for group in state.groups))


def test_adaptation_starts_from_the_model_that_answers():
    """From the mean .92775, client 2 (b = 1, slope 0, pull .5 to where it starts) takes two steps:
    .92775 + .1 * .07225 = .934975, then + .1 * (.065025 - .5 * .007225) = .94111625."""
    method, task = Method.of(Cohorts(((0, 1),)), FedDyn(alpha=0.5)), toy_task(local=Local(lr=0.1, steps=2))
    (state,) = play_method(method, task, 1)
    adapted, _ = adapt(method, state, task, task.profile(method), ReferenceEngine(task))
    reached = {int(client): float(model["params"]) for model, (client,) in adapted}
    assert reached[2] == pytest.approx(0.94111625, abs=1e-6)


def test_everybody_means_everybody_of_the_group():
    """Clients 0, 2 and 1 part after round 1. In round 2 all train, so each group's mean of all its clients'
    latest models is that of its cohort."""
    answers = []
    for which in ("all", "avg"):
        part = FedDyn(alpha=0.5, evaluate=which)
        split = Regrouped(((0, 1, 0),))
        state = play_method(Method.of(Cohorts(((0, 1), (0, 1, 2))), part, split), toy_task(), 2)[-1]
        answers.append([float(model["params"]) for model, _ in serving(Method.of(part), state)])
    assert answers[0] == pytest.approx(answers[1], abs=1e-6)
    assert abs(answers[0][0] - answers[0][1]) > 0.1


def test_h_counts_the_members_of_its_group():
    state = play_toy("feddyn(alpha=0.5)", (0, 1), (0, 1, 2), grouping=Regrouped(((0, 1, 0),)))[-1]
    own = slopes(state)
    assert server_h(state, 0) == pytest.approx((own[0] + own[2]) / 2, abs=1e-5)
    assert server_h(state, 1) == pytest.approx(own[1], abs=1e-5)
