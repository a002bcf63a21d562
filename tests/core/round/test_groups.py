"""What a grouping may do to a round: who is asked, who is drawn, what is sent, what models become."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Round, Updates
from fedcohort.core.roles import Grouping, Selector, Transform
from fedcohort.core.roles.optional import Polls, Tailors
from fedcohort.core.round.groups import likely, members_of
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Weights
from fedcohort.testing import play, tiny_task
from support.toy import Cohorts, Regrouped, play_method, play_toy, position, profile_of, toy_task, updates_of

BOTH_GROUPS = torch.tensor([0, 1, 1])


@dataclass(frozen=True)
class Pair(Grouping, Tailors):
    """Clients 0 | 1, 2 with models at 1 and 5; each hook does what the test says."""

    one_cohort: bool = False
    call: bool = False
    send: float | None = None
    add: float = 0.0
    name: ClassVar[str] = "pair"

    def init_grouping(self, profile: Profile) -> Memory:
        return {"group": BOTH_GROUPS}

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        return [Weights(torch.tensor([at]), torch.zeros(0)) for at in (1.0, 5.0)]

    def odds(self, memory: Memory, profile: Profile) -> Tensor:
        return torch.ones(3, 1) if self.one_cohort else super().odds(memory, profile)

    def calls_all(self, memory: Memory, group: int) -> bool:
        return self.call and group == 1

    def tailor(self, memory: Memory, client: int, models: Sequence[Weights]) -> Memory:
        return {} if self.send is None else {"params": torch.tensor([self.send])}

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        return [model._replace(params=model.params + self.add) for model in models]


@dataclass(frozen=True)
class Curious(Selector, Polls):
    """Asks everybody for a loss, takes the worst-off, and keeps what it saw."""

    name: ClassVar[str] = "curious"

    def init_selector(self, profile: Profile) -> Memory:
        return {"losses": torch.zeros(3), "answered": torch.zeros(3)}

    def candidates(self, memory: Memory, now: Round) -> Ids:
        return now.members

    def learn(self, memory: Memory, now: Round, losses: Tensor, rehearsed: Tensor | None) -> Memory:
        return {**memory, "losses": losses}

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        assert losses is not None
        return now.members[losses[now.members].argsort(descending=True)[: now.cohort]]

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        return {**memory, "answered": memory["answered"].index_fill(0, updates.ids, 1.0)}


def test_one_cohort_is_polled_with_everybodys_own_model_and_observed_whole():
    """b = 3, -1, 1: client 0 at 1 loses 1 + 2, clients 1 and 2 at 5 lose 1 + 18 and 1 + 8."""
    (state,) = play_method(Method.of(Curious(), Pair(one_cohort=True)), toy_task(), 1)
    seen = state.groups[0].selector
    assert seen["losses"].tolist() == pytest.approx([3.0, 19.0, 9.0])
    assert seen["answered"].tolist() == [1, 1, 1]
    assert state.groups[1].selector["answered"].tolist() == [0, 0, 0]  # there is no second cohort


def test_each_groups_updates_go_into_its_own_model_whoever_drew_the_cohort():
    """Client 0 moves group 0 to 1.38; clients 1 and 2 group 1 by 30 and 20 samples."""
    ends = 3 - 2 * 0.9**2, -1 + 6 * 0.9**3, 1 + 4 * 0.9**2
    for one_cohort in (False, True):
        method = Method.of(Cohorts(((0, 1, 2),)), Pair(one_cohort=one_cohort))
        (state,) = play_method(method, toy_task(), 1)
        expected = ends[0], (30 * ends[1] + 20 * ends[2]) / 50
        assert [position(state, g) for g in range(2)] == pytest.approx(expected, abs=1e-5)


def test_a_group_that_is_called_trains_in_full():
    (state,) = play_method(Method.of(Cohorts(((0, 2),)), Pair(call=True)), toy_task(), 1)
    assert state.bytes_up == 3 * 40 + 3 * (20 + 4)  # what each has, once; what each tells with its one number


def test_a_client_may_be_sent_something_of_its_own():
    """From 2 instead of 1, client 0 goes 2 - .1 (2 - 3) = 2.1, then 2.19: its group moves by .19."""
    (state,) = play_method(Method.of(Cohorts(((0,),)), Pair(send=2.0)), toy_task(), 1)
    assert position(state) == pytest.approx(1.19, abs=1e-6)


def test_models_may_be_revised_after_aggregation():
    (state,) = play_method(Method.of(Cohorts(((0,),)), Pair(add=100.0)), toy_task(), 1)
    assert [position(state, g) for g in range(2)] == pytest.approx([101.38, 105.0], abs=1e-5)


def test_where_members_change_the_aggregators_memory_of_them_is_renewed():
    """SCAFFOLD's c is the mean of its members' c_k: when client 2 moves over, both groups' c are."""
    states = play_toy("scaffold", (0, 1, 2), (0, 1, 2), grouping=Regrouped(((0, 1, 0), (0, 1, 1))))
    own = {client: float(memory["c"]) for client, memory in states[1].clients.items()}
    c = [float(group.known("optimiser")["c"]) for group in states[1].groups]
    assert c == pytest.approx([own[0], (own[1] + own[2]) / 2], abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "cfl(eps1=9.0, eps2=0.0)",
        "ifca",
        "fesem",
        "fedsoft",
        "fedconcat(rounds=2)",
        "fedconcat(inferred=True)",
    ],
)
def test_both_engines_agree(text):
    method, task = Method.parse(text), tiny_task()
    slow, _ = play(method, task, 4, engine=ReferenceEngine(task))
    fast, _ = play(method, task, 4, engine=PoolEngine(task, workers=2))
    assert fast.grouping["group"].equal(slow.grouping["group"])
    for ours, theirs in zip(fast.groups, slow.groups, strict=True):
        torch.testing.assert_close(ours.weights.params, theirs.weights.params)


@dataclass(frozen=True)
class Times(Transform):
    """Multiplies movements at the server, by one more in every round."""

    name: ClassVar[str] = "times"
    start: float = 2.0

    def init_server(self, profile: Profile) -> Memory:
        return {"factor": torch.tensor(self.start)}

    def receive(self, updates: Updates, memory: Memory, now: Round) -> tuple[Updates, Memory]:
        factor = memory["factor"]
        return updates.with_deltas(updates.up["delta"] * factor), {"factor": factor + 1}


@dataclass(frozen=True)
class Plus(Transform):
    """Adds to movements at the server."""

    name: ClassVar[str] = "plus"

    def receive(self, updates: Updates, memory: Memory, now: Round) -> tuple[Updates, Memory]:
        return updates.with_deltas(updates.up["delta"] + 1.0), memory


@pytest.mark.parametrize(
    ("chain", "moved"),
    [((Times(), Plus()), 2 * 0.38 + 1), ((Plus(), Times()), 2 * (0.38 + 1)), ((Times(), Times()), 4 * 0.38)],
)
def test_transforms_at_the_server_run_in_their_order(chain, moved):
    """Client 0 moves by .38."""
    (state,) = play_method(Method.of(Cohorts(((0,),)), *chain), toy_task(), 1)
    assert position(state) == pytest.approx(1 + moved, abs=1e-6)


def test_a_transform_at_the_server_remembers_from_round_to_round():
    """Twice .38, to 1.76; then 3 - (3 - 1.76) .81 - 1.76 = .2356 three times. It waits for answers."""
    method = Method.of(Cohorts(((0,), (), (0,))), Times())
    states = play_method(method, toy_task(), 3)
    assert [position(state) for state in states] == pytest.approx([1.76, 1.76, 1.76 + 3 * 0.2356], abs=1e-5)
    assert [float(s.groups[0].known("transform0")["factor"]) for s in states] == [3, 3, 4]


@dataclass(frozen=True)
class Nobody(Transform):
    """Drops every update at the server."""

    name: ClassVar[str] = "nobody"

    def receive(self, updates: Updates, memory: Memory, now: Round) -> tuple[Updates, Memory]:
        return updates.where(torch.zeros(len(updates), dtype=torch.bool)), memory


@pytest.mark.parametrize("others", [(), (Times(),)])
def test_where_a_transform_drops_everybody_nothing_moves(others):
    (state,) = play_method(Method.of(Cohorts(((0, 1),)), Nobody(), *others), toy_task(), 1)
    assert position(state) == 1.0


def test_updates_of_several_groups_are_put_together_by_client():
    """Transforms at the server see one group at a time; what follows sees all, in the order of clients."""
    updates = updates_of([0, 1, 2], size=torch.tensor([1, 2, 3]), group=torch.tensor([0, 1, 0]))
    updates = updates.with_deltas(torch.tensor([[1.0], [2.0], [3.0]]))
    again = Updates.together([updates.where(updates.group == number) for number in (1, 0)])
    assert again.ids.tolist() == [0, 1, 2]
    assert again.size.tolist() == [1, 2, 3]
    assert again.up["delta"].flatten().tolist() == [1, 2, 3]


def test_clients_without_data_are_no_members_and_are_never_drawn() -> None:
    profile = profile_of([[2, 1], [0, 0], [0, 3], [1, 0]])
    grouping = {"group": torch.tensor([0, 0, 1, 0])}
    assert members_of(grouping, 0, profile).tolist() == [0, 3]
    assert members_of(grouping, 1, profile).tolist() == [2]
    assert likely(torch.tensor([0.5, 1.0, 0.0, 2.0]), profile).tolist() == [0, 3]
    assert likely(torch.ones(4), profile).tolist() == [0, 2, 3]
