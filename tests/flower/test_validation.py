"""What is believed of a client's answer, number by number: tests/flower/test_attacks.py has whole runs."""

import math

import pytest
import torch
from torch import Tensor

from fedcohort.core.engine import Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Memory
from fedcohort.core.schema import FACTS, cross_fields, poll_fields, survey_fields, update_fields
from fedcohort.core.tally import BINS
from fedcohort.core.trust import Trust
from fedcohort.core.uploads import unmoved
from fedcohort.flower.fields import read_record, write_fields
from fedcohort.flower.messages import NonsenseError, Payload
from fedcohort.flower.validation import (
    ExpectedAnswer,
    incredible,
    outsized,
    read_accuracy,
    read_answer,
    read_loss,
    read_score,
)
from fedcohort.methods.fedprox import FedProx

TRUST = Trust()
NAN = math.nan


def accuracy(*values: float) -> Payload:
    return Payload({}, {"accuracy": {"accuracy": torch.tensor(values, dtype=torch.float32)}})


def test_a_message_is_written_as_its_fields_say() -> None:
    exact = torch.tensor([0.5, 0.25], dtype=torch.float64)
    told = {FACTS: {"loss": None}, "accuracy": {"accuracy": exact}, "probes": {}}
    facts, tensors = write_fields((*poll_fields(), *cross_fields(2)), told)
    assert facts == {"loss": None}  # it is withheld
    assert tensors["accuracy"]["accuracy"].dtype == torch.float32
    assert tensors.keys() == {"accuracy", "probes"}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({FACTS: {"loss": 1.0, "name": 7}}, "name"),
        ({FACTS: {"loss": 1.0}, "update": {"delta": torch.zeros(1)}}, "delta"),
        ({"loss": {"loss": torch.zeros(())}}, "loss"),
        ({}, "loss"),
    ],
)
def test_what_nobody_declared_is_not_written(told: dict[str, dict[str, object]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_fields(poll_fields(), told)


def test_a_tensor_of_another_shape_is_not_written() -> None:
    with pytest.raises(ValueError, match="3 for 2"):
        write_fields(cross_fields(2), {"accuracy": {"accuracy": torch.zeros(3)}})


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.5, 0.25), (NAN, NAN)])
def test_accuracies_are_shares_or_all_unknown(values: tuple[float, ...]) -> None:
    assert read_accuracy(accuracy(*values), 2).tolist() == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize("values", [(1.01, 0.5), (-0.01, 0.5), (NAN, 0.5), (math.inf, 0.5), (0.5,)])
def test_other_accuracies_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(NonsenseError):
        read_accuracy(accuracy(*values), 2)


@pytest.mark.parametrize("value", [0, 0.0, 3.5, 1e6])
def test_a_loss_is_believed_up_to_a_bound(value: float) -> None:
    assert read_loss(Payload({"loss": value}, {}), poll_fields()) == value


def test_a_loss_may_be_unknown() -> None:
    assert math.isnan(read_loss(Payload({"loss": NAN}, {}), poll_fields()))


@pytest.mark.parametrize("value", [-1e-9, 1.1e6, math.inf, None, "1", [1.0]])
def test_other_losses_are_refused(value: object) -> None:
    with pytest.raises(NonsenseError):
        read_loss(Payload({"loss": value}, {}), poll_fields())


def answer(values: Tensor) -> Payload:
    return Payload({}, {"answer": {"answer": values}})


def test_counts_of_a_survey_are_between_none_and_all() -> None:
    """Ten samples and two models; who says that none fits any has counted nothing."""
    fields = survey_fields(lambda losses: losses.sum(1).long(), 2, 10)
    assert read_answer(answer(torch.tensor([10, 0])), fields).tolist() == [10, 0]
    for odd in ([11, 0], [-1, 5], [0, 0]):
        with pytest.raises(NonsenseError):
            read_answer(answer(torch.tensor(odd)), fields)
    with pytest.raises(NonsenseError):
        read_answer(answer(torch.tensor([5.0, 5.0])), fields)


def score(size: int = 4, right: int = 3, loss: float = 2.0, tables: Memory | None = None) -> Payload:
    return Payload({"size": size, "right": right, "loss": loss}, {"by_class": tables or {}})


def test_a_score_adds_up() -> None:
    told = read_score(score(), 4, 2, TRUST)
    assert (told.size, told.right, told.loss) == (4, 3, 2.0)
    assert read_score(score(loss=4e6), 4, 2, TRUST).loss == 4e6  # a sum over four samples
    tables = answered([[2, 1], [0, 1]])
    assert read_score(score(tables=tables), 4, 2, TRUST).by_class["answers"].tolist() == [[2, 1], [0, 1]]


def answered(answers: list[list[int]], low: int = 3, high: int = 1) -> Memory:
    """Samples by class and answer, and of both classes so many by their log-odds."""
    odds = torch.zeros(2, BINS, dtype=torch.int32)
    odds[:, BINS // 2] = torch.tensor([low, high])
    return {"answers": torch.tensor(answers, dtype=torch.int32), "odds": odds}


@pytest.mark.parametrize(
    "payload", [score(size=5), score(right=5), score(right=-1), score(loss=-1.0), score(loss=4.1e6)]
)
def test_other_scores_are_refused(payload: Payload) -> None:
    with pytest.raises(NonsenseError):
        read_score(payload, 4, 2, TRUST)


@pytest.mark.parametrize(
    "tables",
    [
        answered([[3, 0], [1, 0]], 2, 2),
        answered([[2, 1], [1, 1]], 3, 2),
        answered([[3, 0], [1, 0]], 4, 0),
        answered([[3, -1], [1, 1]], 2, 2),
        answered([[3]]),
        {"answers": answered([[2, 1], [0, 1]])["answers"]},
        {**answered([[2, 1], [0, 1]]), "odds": torch.zeros(2, BINS + 1, dtype=torch.int32)},
    ],
    ids=[
        "odds of other classes",
        "too many",
        "odds of one class",
        "less than none",
        "one class",
        "no odds",
        "bins",
    ],
)
def test_classes_that_do_not_add_up_are_refused(tables: Memory) -> None:
    """Four samples, three of them answered right."""
    with pytest.raises(NonsenseError, match=r"of each class|log-odds|does not hold"):
        read_score(score(tables=tables), 4, 2, TRUST)


def test_classes_must_make_as_many_right_answers_as_it_says() -> None:
    assert read_score(score(right=2, tables=answered([[1, 2], [0, 1]])), 4, 2, TRUST).right == 2
    with pytest.raises(NonsenseError, match="of each class does not add up"):
        read_score(score(right=3, tables=answered([[1, 2], [0, 1]])), 4, 2, TRUST)


def test_of_three_classes_nobody_tells_log_odds() -> None:
    tables = {"answers": torch.diag(torch.tensor([1, 1, 1])).int()}
    assert read_score(score(size=3, tables=tables), 3, 3, TRUST).by_class.keys() == {"answers"}
    with pytest.raises(NonsenseError, match="does not hold answers"):
        read_score(score(size=3, tables={**tables, "odds": torch.zeros(3, BINS).int()}), 3, 3, TRUST)


def test_who_sends_much_more_than_most_is_named() -> None:
    """The middle of three lengths is 1: a thousand times that is still believed."""
    sent = {c: {"delta": torch.tensor([length])} for c, length in enumerate((1.0, 0.5, 1000.0))}
    assert outsized(sent, TRUST, {}, 1.0) == {}
    sent[2]["delta"] = torch.tensor([1001.0])
    assert list(outsized(sent, TRUST, {}, 1.0)) == [2]


def test_one_or_two_are_measured_by_what_was_believed_before() -> None:
    """Of each client the last counts, so that nobody raises the measure by coming often."""
    known: dict[str, dict[int, float]] = {}

    def odd(**lengths: float) -> list[int]:
        sent = {int(client[1:]): {"delta": torch.tensor([length])} for client, length in lengths.items()}
        return list(outsized(sent, TRUST, known, 5.0))

    assert odd(c0=5001.0) == [0]  # the first model's norm is all that is known
    assert odd(c0=4999.0) == odd(c0=4998.0) == odd(c1=1.0) == odd(c2=1.0) == []
    assert known == {"delta": {0: 4998.0, 1: 1.0, 2: 1.0}}
    assert odd(c0=4999.0, c1=2.0) == [0]
    assert odd(c1=0.0, c2=0.0) == odd(c0=4999.0) == []  # most stand still: the model again


def test_whose_loss_is_far_above_that_of_most_is_named() -> None:
    """Not one that only most others are far below, nor where all lose much; who tells none is no measure."""
    nan = math.nan
    assert incredible({0: 1e-4, 1: 1e-4, 2: 60.0}, 2, TRUST) == {}
    assert list(incredible({0: 1e-4, 1: 1e-4, 2: 70.0}, 2, TRUST)) == [2]
    assert incredible({0: 900.0, 1: 1000.0, 2: nan, 3: 9e4}, 2, TRUST) == {}
    assert list(incredible({0: 1.0, 1: 9e5}, 2, TRUST)) == [1]
    assert list(incredible({0: nan, 1: nan, 2: 1.0, 3: 9e5}, 2, TRUST)) == [3]


def test_reach_is_that_of_the_objective() -> None:
    """Two steps of .1 with a pull of 1: .1 and .1 * .9; without it .2."""
    order = Order(0, {"params": torch.zeros(1)}, {}, Local(lr=0.1))
    for objective, reach in ((FedProx(mu=1.0), 0.19), (FedProx(mu=0.0), 0.2)):
        expected = ExpectedAnswer(order, 8, (), 2, True, Method.of(objective), {}, TRUST)
        assert expected._reach(2, 8) == pytest.approx(reach)


@pytest.mark.parametrize("loss", [-0.1, 1.1e6, math.inf, NAN])
def test_losses_of_steps_have_bounds(loss: float) -> None:
    """Two steps on eight samples: the second loss is one that nobody can have."""
    order = Order(0, {"params": torch.zeros(1)}, {}, Local(lr=0.1, steps=2))
    expected = ExpectedAnswer(order, 8, (), 2, False, Method.parse("fedgwc"), {}, TRUST)
    told = {"steps": 2, "size": 8}
    assert expected.read(Payload(told, {"trace": {"trace": torch.tensor([0.5, 1e6])}})).steps == 2
    with pytest.raises(NonsenseError, match=r"a number is not between 0 and 1e.*every step's loss"):
        expected.read(Payload(told, {"trace": {"trace": torch.tensor([0.5, loss])}}))


def test_a_sparse_update_is_put_back_in_its_places_and_others_are_refused() -> None:
    """Half of four parameters: values and places, of which no honest client names one twice or a fifth."""
    method = Method.parse("topk(0.5)")
    down = {"params": torch.zeros(4), "buffers": torch.zeros(0)}
    order = Order(0, down, {}, Local(lr=0.1, steps=2), transforms=method.transforms)
    update = update_fields(unmoved(method.objective, method.transforms, down, {}))
    expected = ExpectedAnswer(order, 8, update, 2, True, method, {}, TRUST)

    def payload(places: list[int], kind: torch.dtype = torch.int32) -> Payload:
        sent = {"values": torch.tensor([3.0, -1.0]), "places": torch.tensor(places, dtype=kind)}
        tensors = {"trace": {"trace": torch.ones(1)}, "update": {**sent, "buffers": torch.zeros(0)}}
        return Payload({"steps": 2, "size": 8}, tensors)

    assert expected.read(payload([1, 3])).up["delta"].tolist() == [0, 3, 0, -1]
    for places in ([3, 1], [1, 1], [-1, 2], [1, 4]):
        with pytest.raises(NonsenseError, match="not written as it must be"):
            expected.read(payload(places))
    for odd in (payload([1, 3], torch.int64), payload([1])):
        with pytest.raises(NonsenseError, match="the wrong shape"):
            expected.read(odd)


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_what_has_no_bounds_is_finite(value: float) -> None:
    """An update may hold any number, but numbers."""
    fields = update_fields({"delta": torch.zeros(2)})
    payload = Payload({}, {"update": {"delta": torch.tensor([1e30, value])}})
    with pytest.raises(NonsenseError, match="not a number: delta of its update"):
        read_record(payload, "update", fields)
