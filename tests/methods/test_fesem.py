"""FeSEM: nearest centre, then mean; a client that is away counts with the last model it sent.

Reference vectors asserted here: fesem, fesem_obj.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedcohort.core.method import Method
from fedcohort.models.flat import Flat
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support.plane import Dictated, centres, plane_round, plane_task

CENTRES = [[0.0, 0.0], [4.0, 0.0]]
ENDS = [[1.0, 0.0], [0.0, 1.0], [3.0, 1.0], [5.0, -1.0], [2.0, 0.0]]
BEGUN = torch.tensor(True)


def test_the_objective():
    """The mean over clients of the squared distance to the nearest centre is (1 + 1 + 2 + 2 + 4) / 5."""
    state = plane_round("fesem(groups=2)", Dictated(plane_task([10] * 5), ENDS), CENTRES, begun=BEGUN)
    gaps = torch.tensor(ENDS) - torch.tensor(CENTRES)[state.grouping["group"]]
    assert float(gaps.square().sum(1).mean()) == 2.0


def test_models_far_from_zero_are_told_apart():
    """Their squares, thousands of millions, would swallow distances of a few units."""
    away = torch.tensor([65536.0, -65536.0])
    ends, started = ((torch.tensor(each) + away).tolist() for each in (ENDS, CENTRES))
    state = plane_round("fesem(groups=2)", Dictated(plane_task([10] * 5), ends), started, begun=BEGUN)
    assert state.grouping["group"].tolist() == [0, 0, 1, 1, 0]


def test_distances_are_euclids():
    """(4, -0.5) is nearer to (3, 3.1), 13.96 < 16.25, but not by sums of differences, 4.6 > 4.5."""
    engine = Dictated(plane_task([10]), [[4.0, -0.5]])
    state = plane_round("fesem(groups=2)", engine, [[0.0, 0.0], [3.0, 3.1]], begun=BEGUN)
    assert state.grouping["group"].tolist() == [1]


@pytest.mark.parametrize("far", [1e3, 1e6])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_centre_that_is_far_off_moves_nobody_else(far, place):
    """What one outlying client made of its centre: the others are told apart by theirs."""
    started = list(CENTRES)
    started.insert(place, [far, far])
    state = plane_round("fesem(groups=3)", Dictated(plane_task([10] * 5), ENDS), started, begun=BEGUN)
    near = [number for number in range(3) if number != place]
    assert state.grouping["group"].tolist() == [near[side] for side in (0, 0, 1, 1, 0)]


@pytest.mark.parametrize("group", [[0] * 5, [1, 0, 1, 0, 1]], ids=["all in one", "mixed"])
def test_one_round(group):
    """{0, 1, 4} and {2, 3}, whichever centre they trained from: (3, 1) / 3 and (8, 0) / 2."""
    engine = Dictated(plane_task([10] * 5), ENDS)
    state = plane_round("fesem(groups=2)", engine, CENTRES, group=torch.tensor(group), begun=BEGUN)
    assert state.grouping["group"].tolist() == [0, 0, 1, 1, 0]
    assert centres(state)[0] == pytest.approx([1.0, 1 / 3])
    assert centres(state)[1] == pytest.approx([4.0, 0.0])


def test_weighted_by_samples():
    """Client 4 with 80 samples, 0 and 1 with 10 each: (10 + 0 + 160, 0 + 10 + 0) / 100."""
    engine = Dictated(plane_task([10, 10, 10, 10, 80]), ENDS)
    state = plane_round("fesem(groups=2, weighted=True)", engine, CENTRES, begun=BEGUN)
    assert centres(state)[0] == pytest.approx([1.7, 0.1])


def test_who_is_away_counts_with_its_last_model_and_who_never_came_does_not():
    """Clients 2 and 3 were last seen at (5, 1) and (5, -1), client 4 never: centre 1 is (5, 0)."""
    engine = Dictated(plane_task([10, 10, 0, 0, 0]), ENDS)
    known = torch.tensor([False, False, True, True, False])
    last = torch.zeros(5, 2)
    last[2:4] = torch.tensor([[5.0, 1.0], [5.0, -1.0]])
    group = torch.tensor([0, 0, 1, 1, 1])
    state = plane_round("fesem(groups=2)", engine, CENTRES, group=group, known=known, last=last, begun=BEGUN)
    assert centres(state) == [pytest.approx([0.5, 0.5]), pytest.approx([5.0, 0.0])]


def test_a_centre_without_clients_stays():
    engine = Dictated(plane_task([10] * 5), ENDS)
    state = plane_round("fesem(groups=3)", engine, [*CENTRES, [90.0, 90.0]], begun=BEGUN)
    assert centres(state)[2] == [90.0, 90.0]


def test_the_first_centres_come_from_one_common_round():
    """Before it there is one model; K-means of where it took the clients finds {0, 1, 4} and {2, 3}."""
    ends = [[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [1.0, 0.0]]
    state = plane_round("fesem(groups=2)", Dictated(plane_task([10] * 5), ends), [[0.0, 0.0]])
    assert state.grouping["group"].tolist() == [0, 0, 1, 1, 0]
    assert centres(state) == [pytest.approx([1 / 3, 1 / 3]), pytest.approx([9.0, 8.5])]


def test_only_chosen_layers_are_compared():
    """(1, 5) is nearer to (0, 0), 26 < 80, but not by its second weight, 25 > 16; centres move as a whole."""

    class Pair(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))

    task, apart = replace(plane_task([10, 10]), model=Flat(Pair)), [[0.0, 0.0], [9.0, 9.0]]
    for layers, group in (("all", [0, 0]), ("last", [0, 1]), ("1", [0, 1]), ("0.weight 1", [0, 0])):
        engine = Dictated(task, [[0.0, 0.0], [1.0, 5.0]])
        state = plane_round(f"fesem(groups=2, layers='{layers}')", engine, apart, begun=BEGUN)
        assert state.grouping["group"].tolist() == group
    state = plane_round("fesem(groups=2, layers='last')", engine, apart, begun=BEGUN)
    assert centres(state) == [[0.0, 0.0], [1.0, 5.0]]
    with pytest.raises(UserError, match=r"no layer 'dense'; it has 0.weight, 1.weight"):
        plane_round("fesem(layers='dense')", engine, [[0.0, 0.0]])


def test_too_few_clients_for_the_centres():
    state = plane_round("fesem(groups=4)", Dictated(plane_task([10, 10]), ENDS), [[0.0, 0.0]])
    assert centres(state) == [[1.0, 0.0], [0.0, 1.0]]


def test_one_centre_and_everybody_is_the_plain_mean():
    ours, theirs = (
        play(Method.parse(text), tiny_task(cohort=8), 3)[0].groups[0].weights.params
        for text in ("fesem(groups=1)", "fairavg")
    )
    torch.testing.assert_close(ours, theirs)
