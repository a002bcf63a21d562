"""Clients on many machines are what they are on one: the same numbers, whoever holds them or is lost."""

import gc
from dataclasses import replace
from itertools import chain, pairwise

import pytest
import torch

from fedcohort.core.evaluate import adapted_rows, evaluation_rows
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data import Federation, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines import host
from fedcohort.engines.ray import RayEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.engines.shards import Shards, climb, share_out
from fedcohort.testing import assert_same, play, tiny_task
from fedcohort.testing.tiny import history
from fedcohort.util.errors import UserError
from support.methods import EVERYTHING
from support.own_cluster import Call, OwnCluster, Remote, in_process

__all__ = ["in_process"]


def many_clients() -> Federation:
    data = load("synthetic", samples=1280, classes=4, features=12, spread=0.5)
    return federate(data, partitioner("iid", clients=64), SplitPlan())


def engine_on(task: Task, machines: int, cores: int = 1) -> RayEngine:
    return RayEngine(task, OwnCluster(machines, cores))


SOME = ("cafa", "centralised", "clust_psi_pfl", "fedentropy", "median", "scaffold+topk(0.3)")
OTHERS = [pytest.param(text, marks=pytest.mark.deploy) for text in EVERYTHING if text not in SOME]


@pytest.mark.parametrize("text", [*SOME, *OTHERS])
def test_every_method_agrees_with_the_reference_on_any_number_of_machines(text, in_process):
    method, task = Method.parse(text), tiny_task()
    fitted = task.for_method(method)
    one, three = (play(method, task, 2, engine=engine_on(fitted, n, n))[0] for n in (1, 3))
    assert_same(three, one, f"{method} on three machines")
    for ours, theirs in zip(one.groups, history(method)[2].groups, strict=True):
        torch.testing.assert_close(ours.weights.params, theirs.weights.params, rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", ["fedavg", "local_only", "ifca", "fedconcat(rounds=1)"])
def test_evaluation_agrees_with_the_reference(text, in_process):
    """All scopes: global, personal and adapted, of shared, personal and merged models."""
    method, task = Method.parse(text), tiny_task()
    state, profile = play(method, task, 2)[0], task.profile(method)
    slow, fast = ReferenceEngine(task), engine_on(task, 3)
    for rows in (
        lambda engine: [*chain(*evaluation_rows(method, state, task, profile, engine, clients=True))],
        lambda engine: adapted_rows(method, state, task, profile, engine),
    ):
        theirs, ours = rows(slow), rows(fast)
        assert [row[:-1] for row in ours] == [row[:-1] for row in theirs]
        values = [row.value for row in theirs]
        assert [row.value for row in ours] == pytest.approx(values, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("bn", ["average", "local"])
def test_convolutions_and_batch_norm(bn, in_process):
    def network(classes: int) -> torch.nn.Module:
        from torch import nn

        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(144, classes),
        )  # fmt: skip

    deal = partitioner("dirichlet", clients=10, alpha=0.5)
    local = Local(lr=0.1, epochs=1, batch=8, bn=bn)
    task = Task.of(federate(load("digits"), deal, SplitPlan()), network, local=local, cohort=4)
    method = Method.parse("power_of_choice")
    states = [play(method, task, 2, engine=engine_on(task, n))[0] for n in (1, 2)]
    assert_same(*states, "BatchNorm on two machines")
    slow = play(method, task, 2)[0]
    for ours, theirs in zip(states[0].groups[0].weights, slow.groups[0].weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


MOMENTS = [("fedavg", 2), ("fedavg", 3), ("fedavg", 4), ("median", 6), ("fedconcat(rounds=1)", 7)]
MORE = [
    (text, calls) for text in ("fedavg", "median", "scaffold", "fedconcat(rounds=1)") for calls in range(8)
]
LATER = [pytest.param(*more, marks=pytest.mark.deploy) for more in MORE if more not in MOMENTS]


@pytest.mark.parametrize(("text", "calls"), [*MOMENTS, *LATER])
def test_a_machine_that_is_lost_at_any_moment_costs_nothing(text, calls, in_process, monkeypatch):
    """It answers so many questions and is gone: while it is given clients, trains, sums or evaluates."""
    method, task = Method.parse(text), tiny_task(cohort=8)
    whole = play(method, task, 3, engine=engine_on(task, 3))[0]
    cluster = OwnCluster(3)
    weak = cluster.machines[1].actor
    answer = Call.__call__

    def until_then(call):
        weak.alive &= weak.served < calls
        return answer(call)

    monkeypatch.setattr(Call, "__call__", until_then)
    engine = RayEngine(task, cluster)
    assert_same(play(method, task, 3, engine=engine)[0], whole, f"{method}, with one machine lost")
    assert len(cluster.machines) == 2
    assert not weak.alive


@pytest.mark.parametrize("text", ["fedavg", "median"])
def test_two_machines_that_are_lost_in_one_round_cost_nothing(text, in_process, monkeypatch):
    """One while it trains; the other, which has trained, when it is given clients of the first."""
    method, task = Method.parse(text), tiny_task(cohort=8)
    whole = play(method, task, 3, engine=engine_on(task, 3))[0]
    cluster = OwnCluster(3)
    other, weak, _ = (machine.actor for machine in cluster.machines)
    answer = Call.__call__

    def until_then(call):
        weak.alive &= call.method != "ask"  # to train, the first time
        other.alive &= weak.alive or call.method != "take"
        return answer(call)

    monkeypatch.setattr(Call, "__call__", until_then)
    assert_same(play(method, task, 3, engine=RayEngine(task, cluster))[0], whole, f"{method}, two lost")
    assert len(cluster.machines) == 1


def test_a_round_costs_a_model_a_machine_not_one_a_client(in_process):
    """64 clients on two machines: down a model each, up a sum each, and a little for each client."""
    task = Task.of(many_clients(), "mlp", {"widths": [3000]}, local=Local(lr=0.1, steps=1), cohort=64)
    model, cluster = 4 * task.model.num_params, OwnCluster(2)
    engine = RayEngine(task, cluster)
    before = [machine.actor.bytes for machine in cluster.machines]
    play(Method.parse("fedavg"), task, 1, engine=engine)
    sent = sum(machine.actor.bytes for machine in cluster.machines) - sum(before)
    assert 4 * model < sent < 4 * model + 64 * 2000
    play(Method.parse("median"), task, 1, engine=engine)
    rows = sum(machine.actor.bytes for machine in cluster.machines) - sum(before) - sent
    assert rows > 64 * model  # it looks at each


def test_what_nobody_asks_about_any_more_is_forgotten(in_process):
    task, method = tiny_task(), Method.parse("fedavg")
    engine = engine_on(task, 1)
    play(method, task, 4, engine=engine)
    (machine,) = engine.cluster.machines
    (node,) = machine.actor.host.nodes.values()
    assert len({ticket for ticket, _ in node.rows}) <= 2


def test_an_engine_may_outlive_its_cluster(in_process, monkeypatch):
    """What is left of it when nobody needs it any more says nothing, even if another cluster is there now."""

    def gone(*_: object) -> None:
        raise Exception("can't find actor")

    task = tiny_task()
    engine = engine_on(task, 2)
    play(Method.parse("fedavg"), task, 1, engine=engine)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    asked = []
    for machine in engine.cluster.machines:
        monkeypatch.setattr(machine.actor, "close", Remote(machine.actor, "close"), raising=False)
        monkeypatch.setattr(machine.actor.close, "remote", lambda name: asked.append(name) or gone())
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    del engine
    gc.collect()
    assert len(asked) == 2
    assert not unraisable


def test_machines_without_memory_for_the_data_are_refused(in_process):
    with pytest.raises(UserError, match=r"10\.0\.0\.\d has 0.0001 GB of memory .* take .* GB: add machines"):
        RayEngine(
            Task.of(federate(load("digits"), partitioner("iid", clients=4), SplitPlan())),
            OwnCluster(1, 1, 1e5),
        )


def test_a_machine_that_reads_has_to_hold_all_clients_for_a_while(in_process):
    task = tiny_task(cohort=8)
    whole = int(task.data.sizes.sum()) * (task.data.train.x[0].nbytes + 8)
    RayEngine(task, OwnCluster(2, 1, whole))
    with pytest.raises(UserError, match=r"10\.0\.0\.0 has .* and reading all clients' data takes .* be sent"):
        RayEngine(task, OwnCluster(2, 1, whole), read=lambda: task.data)


def test_machines_may_read_clients_themselves(in_process, monkeypatch):
    """Each reads once for all its shards, and again for those of a machine that is lost."""
    reads, method, task = [], Method.parse("fedavg"), tiny_task(cohort=8)
    read_here = host.read_here
    monkeypatch.setattr(host, "read_here", lambda read: reads.append(read) or read_here(read))
    sent = play(method, task, 2, engine=engine_on(task, 3))[0]
    assert reads == []
    engine = RayEngine(task, OwnCluster(3), read=lambda: task.data)
    assert len(reads) == 3
    state = play(method, task, 1, engine=engine)[0]
    engine.cluster.machines[1].actor.alive = False
    assert_same(play(method, task, 1, state, engine=engine)[0], sent, "data that machines read")
    assert len(reads) > 3


def test_shards_do_not_depend_on_who_is_there_and_hold_everybody_once():
    task = Task.of(many_clients(), cohort=64)
    shards = Shards.of(task)
    assert shards.number == 8  # of eight clients that are trained together
    assert [client for shard in range(8) for client in shards.clients(shard).tolist()] == list(range(64))
    clients = torch.tensor([63, 0, 31, 5])
    found = shards.of_each(clients)
    assert {int(clients[place]) for places in found.values() for place in places} == {63, 0, 31, 5}
    for shard, places in found.items():
        assert all(client in shards.clients(shard) for client in clients[places])
    sizes = [int(task.federation.sizes[0, shards.clients(shard)].sum()) for shard in range(8)]
    assert max(sizes) < 2 * min(sizes)
    skewed = replace(task.federation.train, offsets=torch.tensor([0] * 64 + [10]))
    lonely = replace(task, federation=replace(task.federation, train=skewed))
    assert sorted(
        c for s in range(Shards.of(lonely).number) for c in Shards.of(lonely).clients(s).tolist()
    ) == list(range(64))


@pytest.mark.parametrize(
    "owners", [[0] * 8, [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0, 1]]
)
def test_sums_climb_one_tree_whoever_begins(owners):
    """Of numbers that add up to something else in any other order; the third shard has nothing to say."""
    key = torch.Generator().manual_seed(0)
    leaves = {(0, shard): torch.randn(50, generator=key) * 10.0**shard for shard in range(8) if shard != 2}
    whole = climb(leaves, 8, range(8))
    assert list(whole) == [(3, 0)]
    parts = {}
    for owner in set(owners):
        here = [shard for shard in range(8) if owners[shard] == owner]
        own = {place: vector for place, vector in leaves.items() if place[1] in here}
        parts |= climb(own, 8, here)
    assert torch.equal(climb(parts, 8, range(8))[3, 0], whole[3, 0])
    if owners == [0, 0, 0, 0, 1, 1, 1, 1]:
        assert set(parts) == {(2, 0), (2, 1)}  # a sum for each machine


def test_pieces_are_shared_out_in_a_row_and_evenly():
    assert share_out([1.0] * 8, [1, 1]) == [0] * 4 + [1] * 4
    assert share_out([1.0] * 8, [1, 1, 1]) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert share_out([1.0] * 64, [2, 2, 2]) == [0] * 20 + [1] * 24 + [2] * 20  # in fours
    assert share_out([9.0, 1, 1, 1], [1, 1]) == [0, 1, 1, 1]
    assert share_out([1.0] * 8, [3, 1]) == [0] * 6 + [1] * 2  # one has three cores
    assert all(a <= b for a, b in pairwise(share_out([0.0, 5, 0, 0, 3], [1] * 4)))
