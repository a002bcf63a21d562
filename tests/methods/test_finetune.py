"""Fine-tuning: a few more steps on a client's own samples, from the model that serves it, for it alone."""

import pytest
import torch
from torch import nn

from fedcohort.core.evaluate import evaluation_rows, in_use
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.testing import assert_same, play, tiny_task
from fedcohort.testing.faulty import with_sizes
from fedcohort.util.errors import UserError
from support.toy import Cohorts, Failing, play_method, position, toy_task

MEAN = (10 * 1.38 + 30 * 0.458) / 40  # where fedavg is after a round of clients 0 and 1


def tuned(text: str, task: Task | None = None, lost: tuple[int, ...] = ()) -> tuple[float, list[float]]:
    """Where the common model is after a round of the toy problem's clients 0 and 1, and where each client's
    own is."""
    task = task or toy_task()
    method = Method.of(Cohorts(((0, 1),)), *Method.parse(text).parts[1:])
    (state,) = play_method(method, task, 1)
    engine = Failing(task)
    engine.lost = lost
    models, _ = in_use(method, state, task, engine)
    at = {client: float(model["params"]) for model, members in models for client in members.tolist()}
    return position(state), [at[client] for client in sorted(at)]


def test_steps_from_the_common_model():
    """Two steps take a client from x to b + .81 (x - b), also one that never trained; x stays where it is."""
    common, own = tuned("finetune(steps=2)")
    assert common == pytest.approx(MEAN, abs=1e-6)
    assert own == pytest.approx([b + 0.81 * (MEAN - b) for b in (3, -1, 1)], abs=1e-6)


def test_epochs_and_learning_rate():
    """An epoch is one batch here: three of lr = .5 leave an eighth of the way."""
    assert tuned("finetune(epochs=3, lr=0.5)")[1] == pytest.approx(
        [b + 0.125 * (MEAN - b) for b in (3, -1, 1)], abs=1e-6
    )


def test_the_learning_rate_is_that_of_the_next_round():
    """.1 has become .05 after a round."""
    task = toy_task(local=Local(lr=0.1, batch=100, decay=0.5))
    assert tuned("finetune", task)[1][1] == pytest.approx(-1 + 0.95 * (MEAN + 1), abs=1e-6)


@pytest.mark.parametrize("objective", ["fedprox(mu=5)", "scaffold", "feddyn"])
def test_nothing_pulls_a_client_back(objective):
    """A pull of 5, or what clients' gradients are corrected by, would end elsewhere. FedDyn serves the mean
    of those who trained, another model than it trains."""
    common, own = tuned(f"{objective}+finetune(steps=2)")
    start = tuned(objective)[1][0]
    assert own == pytest.approx([b + 0.81 * (start - b) for b in (3, -1, 1)], abs=1e-5)
    assert common == tuned(objective)[0]


def test_a_client_that_trains_alone_goes_on_from_its_own_model():
    """Client 0 stands at 1.38, client 1 at .458, and client 2 has never trained."""
    own = tuned("local_only+finetune(steps=2)")[1]
    assert own == pytest.approx([3 - 0.81 * 1.62, -1 + 0.81 * 1.458, 1], abs=1e-6)


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
def test_the_loss_is_the_objective_s(engine):
    """FedLC's calibrated logits, not plain cross-entropy."""
    task = tiny_task()
    state, _ = play(Method.parse("fedlc(tau=2)"), task, 1)
    methods = [Method.parse(f"{objective}finetune") for objective in ("fedlc(tau=2)+", "")]
    calibrated, plain = (in_use(method, state, task, engine(task))[0] for method in methods)
    assert not calibrated[0][0]["params"].equal(plain[0][0]["params"])


def test_who_does_not_arrive_is_served_by_the_common_model():
    """Client 0 has an infinite example, and client 1 is lost."""
    task = toy_task(b=(float("inf"), -1, 1))
    common, own = tuned("finetune(steps=2)", task, lost=(1,))
    assert own == pytest.approx([common, common, 1 + 0.81 * (common - 1)], abs=1e-6)


def test_who_has_no_samples_is_served_by_the_common_model():
    task = with_sizes(tiny_task(), {0: 0})
    method = Method.parse("finetune")
    state, _ = play(method, task, 1)
    models, _ = in_use(method, state, task, ReferenceEngine(task))
    common = state.groups[0].weights.params
    assert [members.tolist() for model, members in models if model["params"] is common] == [[0]]


def test_training_goes_on_as_without():
    ours, _ = play(Method.parse("fedentopt+scaffold+finetune"), tiny_task())
    theirs, _ = play(Method.parse("fedentopt+scaffold"), tiny_task())
    assert_same(ours, theirs, "finetune changes what is trained")


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two layers: x -> 2 x -> W 2 x + c, with W = 0."""
    body, head = nn.Linear(*shape, *shape), nn.Linear(*shape, classes)
    with torch.no_grad():
        body.weight.copy_(2 * torch.eye(*shape))
        for zero in (body.bias, head.weight, head.bias):
            zero.zero_()
    return nn.Sequential(body, head)


def one_client(x: list[list[float]], y: list[int]) -> Task:
    split = Split.of(torch.tensor(x), torch.tensor(y), [torch.arange(len(y))])
    federation = Federation(split, split, split, ("no", "yes"), ("0",), None, {})
    return Task.of(federation, linear, local=Local(lr=0.1), cohort=1)


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
@pytest.mark.parametrize("layers", ["all", "last"])
def test_a_step_of_a_linear_model(layers, engine):
    """x = (1, 3) of class 1: both are .5 likely, so the head moves by -.1 (.5, -.5) (2, 6) and its bias by
    -.1 (.5, -.5). The body has no slope yet, because W = 0: in a second step it would move, by W' (p - y).
    Then z = W 2x + c = (-2.05, 2.05), p = 1 / (1 + e^-4.1) = .983698, and W moves by .1 (-g, g) (2, 6) with
    g = .016302; with all layers the body's weight by -.1 W'(g, -g) x'. Of the latter only the first row's
    first is written down: .1 * .2 g * 1 = .000326."""
    task, method = one_client([[1.0, 3.0]], [1]), Method.parse(f"finetune(steps=1, layers='{layers}')")
    state, _ = play(method, task, 0)
    first = in_use(method, state, task, engine(task))[0][0][0]["params"]
    body = [2, 0, 0, 2, 0, 0]
    assert first.tolist() == pytest.approx([*body, -0.1, -0.3, 0.1, 0.3, -0.05, 0.05], abs=1e-6)
    method, g = Method.parse(f"finetune(steps=2, layers='{layers}')"), 0.016302
    second = in_use(method, state, task, engine(task))[0][0][0]["params"]
    head = [-0.1 - 0.2 * g, -0.3 - 0.6 * g, 0.1 + 0.2 * g, 0.3 + 0.6 * g, -0.05 - 0.1 * g, 0.05 + 0.1 * g]
    assert second[6:].tolist() == pytest.approx(head, abs=1e-6)
    if layers == "last":
        assert second[:6].tolist() == body
    else:
        assert float(second[0]) == pytest.approx(2 + 0.1 * 0.2 * g, abs=1e-6)


def test_the_last_layer_must_be_one():
    task = toy_task()
    with pytest.raises(UserError, match="ends with"):
        Method.parse("finetune(layers='last')").check(task.profile(Method.of()))


@pytest.mark.parametrize("layers", ["all", "last"])
def test_engines_agree(layers):
    """Of all layers small clients are tuned together; the last alone is not fused."""
    task, method = tiny_task(), Method.parse(f"fedavg+finetune(epochs=3, layers='{layers}')")
    state, _ = play(method, task, 2)
    slow, fast = (in_use(method, state, task, kind(task))[0] for kind in (ReferenceEngine, PoolEngine))
    assert len(slow) == len(fast) == task.data.num_clients
    for (ours, mine), (theirs, yours) in zip(slow, fast, strict=True):
        assert mine.equal(yours)
        torch.testing.assert_close(ours["params"], theirs["params"], atol=1e-6, rtol=0)


def test_what_is_measured_is_what_clients_use():
    """A common model that has learnt nothing, and what clients make of it."""
    task, metrics = tiny_task(), {}
    for text in ("fedavg", "finetune(epochs=50)"):
        method = Method.parse(text)
        state, _ = play(method, task, 0)
        rows, _ = evaluation_rows(method, state, task, task.profile(method), ReferenceEngine(task), False)
        metrics[text] = {row.key: row.value for row in rows}
    before, after = metrics.values()
    for scope in ("global", "personal"):
        assert after[f"{scope}.accuracy"] > before[f"{scope}.accuracy"] + 0.4
    assert (before["groups"], after["groups"]) == (1, task.data.num_clients)


def test_its_name_says_how_the_common_model_is_trained():
    for text in ("fedavg+finetune", "ifca+finetune(lr=0.5)", "fedavg"):
        assert str(Method.parse(text)) == text
    assert str(Method.parse("finetune")) == "fedavg+finetune"


def test_it_is_no_method_of_one_model():
    assert Method.parse("fedavg").one_model
    assert not Method.parse("fedavg+finetune").one_model
