"""Top-k with error feedback: a = delta + e, the largest entries are sent, e keeps the rest."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.records import View
from fedcohort.core.roles import Transform
from fedcohort.core.state import pack, unpack
from fedcohort.core.uploads import transformed
from fedcohort.methods.topk import TopK
from fedcohort.testing import play, tiny_task


def test_two_uploads():
    """Half of four: of (4, -3, 1, 2) it sends 4 and -3. The rest, (0, 0, 1, 2), is added to (1, 0, 1, 1.5):
    of (1, 0, 2, 3.5) it sends 3.5 and 2, and keeps 1."""
    part, mine = TopK(0.5), {"error": torch.zeros(4)}
    sent, mine = part.upload(torch.tensor([4.0, -3, 1, 2]), mine, None)  # type: ignore[arg-type]
    assert sent.tolist() == [4, -3, 0, 0]
    assert mine["error"].tolist() == [0, 0, 1, 2]
    sent, mine = part.upload(torch.tensor([1.0, 0, 1, 1.5]), mine, None)  # type: ignore[arg-type]
    assert sent.tolist() == [0, 0, 2, 3.5]
    assert mine["error"].tolist() == [1, 0, 0, 0]


def test_without_feedback_what_is_left_out_is_lost():
    part = TopK(0.5, feedback=False)
    sent, mine = part.upload(torch.tensor([4.0, -3, 1, 2]), {}, None)  # type: ignore[arg-type]
    assert (sent.tolist(), mine) == ([4, -3, 0, 0], {})


@pytest.mark.parametrize(("share", "sent"), [(1e-9, 1), (0.5, 5), (0.51, 6), (0.7, 7), (1.0, 10)])
def test_at_least_so_many_and_at_least_one(share, sent):
    assert len(TopK(share).largest(torch.arange(10.0))) == sent


def test_what_travels_is_places_and_values_and_comes_back():
    part, delta, c = TopK(0.5), torch.tensor([0.0, -3, 0, 2]), torch.ones(2)
    sent = part.encode({"delta": delta, "change": c})
    assert sent["places"].tolist() == [1, 3]
    assert sent["values"].tolist() == [-3, 2]
    back = part.decode(sent, 4)
    assert back["delta"].equal(delta)
    assert back["change"] is c


@pytest.mark.parametrize("places", [[3, 1], [1, 1], [-1, 1], [1, 4], [2**31 - 1, 0]])
def test_places_that_nobody_sends_are_refused(places):
    update = {"values": torch.ones(2), "places": torch.tensor(places, dtype=torch.int32)}
    with pytest.raises(ValueError, match="places"):
        TopK(0.5).decode(update, 4)


def test_all_of_it_is_fedavg():
    ours, theirs = (play(Method.parse(text), tiny_task())[0] for text in ("topk(1.0)", "fedavg"))
    torch.testing.assert_close(ours.groups[0].weights.params, theirs.groups[0].weights.params)


def test_what_was_left_out_is_part_of_a_checkpoint():
    """A client that trains again after a restart sends what it left out before."""
    method, task = Method.parse("topk(0.1)"), tiny_task(cohort=8)
    half = play(method, task, 2)[0]
    assert all(half.clients[client]["transform0/error"].any() for client in range(8))
    whole = play(method, task, 2, half)[0]
    again = play(method, task, 2, unpack(pack(half)))[0]
    assert again.groups[0].weights.params.equal(whole.groups[0].weights.params)
    forgetful = play(Method.parse("topk(0.1, feedback=False)"), task, 4)[0]
    assert not forgetful.groups[0].weights.params.equal(whole.groups[0].weights.params)


def test_what_a_later_link_adds_is_lost_as_on_the_wire():
    """Of (1.5, .5, .5, 2.5), where half is sent, .5 and .5 stay behind, in a simulation too."""

    class Plus(Transform):
        def upload(self, delta, mine, view):
            return delta + 0.5, mine

    chain = (TopK(0.5, feedback=False), Plus())
    view = View({}, {}, torch.ones(1), 1, 0.1, 1)
    up, _ = transformed(chain, {"delta": torch.tensor([1.0, 0.1, 0.2, 2.0])}, {}, view)
    assert up["delta"].tolist() == [1.5, 0, 0, 2.5]


def test_transforms_at_a_client_run_in_their_order():
    """(3, 4) to the norm 1 is (.6, .8), of which top-k of one sends .8; of (0, 4), clipped after it, 1."""
    view = View({}, {}, torch.ones(1), 1, 0.1, 1)
    for chain, expected in (
        ("clip(1)+topk(0.5, feedback=False)", 0.8),
        ("topk(0.5, feedback=False)+clip(1)", 1.0),
    ):
        up, _ = transformed(Method.parse(chain).transforms, {"delta": torch.tensor([3.0, 4.0])}, {}, view)
        assert up["delta"].tolist() == pytest.approx([0, expected])


def test_transforms_of_one_method_keep_their_memories_apart():
    """The second of two in a row gets what the first sends, and has nothing to add to it."""
    method, task = Method.parse("topk(0.5)+topk(0.1)"), tiny_task(cohort=8)
    state = play(method, task, 1)[0]
    first, second = (state.clients[0][f"transform{place}/error"] for place in (0, 1))
    assert not first.equal(second)
    assert second.any()
    assert not (first * second).any()
