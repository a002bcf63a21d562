"""What goes wrong in real federations, done to one here: it goes on, and says what happened to whom."""

import math
import re

import pytest

from support.deployment import EXPERIMENT, Deployment, read_rows, simulate
from support.loopback import own_network

pytestmark = pytest.mark.deploy

FOUR = {"name": "dirichlet", "clients": 4, "alpha": 0.5}
NETWORK = """
from torch import nn

def make(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.ReLU(), nn.Linear(4, classes))
"""
WARD = """
import numpy as np

def load(client):
    y = np.arange(40) % 2
    return np.stack([2.0 * y - 1, np.full(40, {offset})], 1), y
"""

TROUBLE = '''"""A client's part that misbehaves at some clients."""

import time

import torch
from flwr.clientapp import ClientApp

from fedcohort.flower import messages
from fedcohort.flower.client_app import app as honest

FAULTS = {faults!r}  # by part


class Troubled(ClientApp):
    def __call__(self, message, context):
        fault, kind = FAULTS.get(context.node_config["partition-id"]), message.metadata.message_type
        if fault == "slow" and kind == messages.TRAIN and messages.read(message.content).facts["number"] == 1:
            time.sleep(125)
        reply = honest(message, context)
        if kind == messages.TRAIN and fault in ("nan", "shape"):
            payload = messages.read(reply.content)
            spoil = (lambda v: v * torch.nan) if fault == "nan" else (lambda v: v[:-1])
            update = {{key: spoil(value) for key, value in payload.tensors["update"].items()}}
            payload.tensors["update"] = update
            reply.content = messages.write(payload)
        if kind == messages.PROFILE and fault == "counts":
            payload = messages.read(reply.content)
            counts = payload.tensors["counts"]["counts"]
            payload.tensors["counts"] = {{"counts": torch.cat([counts, counts[:1]])}}
            reply.content = messages.write(payload)
        return reply


app = Troubled()
'''


@pytest.fixture
def network():
    with own_network() as network:
        yield network


def test_nonsense_is_refused_lateness_given_up_and_the_rest_averaged(tmp_path, network):
    """Of five clients one sends NaN, one a wrong shape, one is too late in round 2, and one that counts its
    labels wrong does not even take part. Two that have no admitted key get nowhere."""
    experiment = {**EXPERIMENT, "method": ["fedlecc"], "partition": {"name": "iid", "clients": 5}}
    experiment["evaluate"] = {"every": 2, "on": "test"}
    faults = {1: "nan", 2: "shape", 3: "slow", 4: "counts"}
    with Deployment(tmp_path, network, experiment, clients=5) as there:
        (there.app / "fedcohort_app/client_app.py").write_text(TROUBLE.format(faults=faults))
        there.start_server()
        there.start_clients(5)
        there.refuse_stranger()
        run = there.start_run(round_timeout=100)
        assert there.wait_for_run(run, 500) == "finished:completed"
    told, rows, page = there.told(), read_rows(there.results()), there.report()
    for client, what in ((1, "not a number: delta"), (2, r"the wrong shape, \d+ for \d+: delta")):
        words = f"is refused: {what} of its update"
        assert len(re.findall(rf"client-{client} {words}\n", told)) == 2, told[-5000:]
        assert re.search(rf"{words} \(rounds 1 and 2\)", page)
    assert "client-3 did not answer in time" in told
    assert "did not answer in time (round 2" in page
    assert "does not take part: the wrong shape, 11 for 10: label counts" in told
    assert "does not take part: the wrong shape, 11 for 10: label counts" in page
    assert [(rows[n, "round.lost"], rows[n, "round.rejected"]) for n in (1, 2)] == [(0, 2), (1, 2)]
    assert rows[2, "global.loss"] < math.log(10)  # that of a model that has learnt nothing of ten classes


def test_a_client_killed_in_a_round_is_missed_and_comes_back_by_itself(tmp_path, network):
    """Killed while it trains in round 2. Its own supervisor starts it again; the server, which believes it to
    be there for a minute, refuses it until then. It trains in the last round. At last another is shut out."""
    experiment = {**EXPERIMENT, "rounds": 5, "evaluate": {"every": 5, "on": "test"}, "partition": FOUR}
    with Deployment(tmp_path, network, experiment, clients=4) as there:
        there.start_server()
        there.start_clients(4)
        run = there.start_run(round_timeout=120)
        victim = there.clients[2]
        victim.wait_for("Receiving: train message", 120, times=2)
        there.kill(victim, "flower-supernode")
        victim.wait_for("not connected; trying again", 30)
        assert there.wait_for_run(run, 500) == "finished:completed"
        there.shut_out(3)
    rows, own, page = read_rows(there.results()), read_rows(there.results(), "client-2"), there.report()
    assert [rows[number, "round.lost"] for number in (1, 2, 5)] == [0, 1, 0]
    assert [own[number, "cohort.trained"] for number in (1, 2, 5)] == [1, 0, 1]
    assert "went offline (round 2)" in page or "did not answer in time (round 2)" in page, there.told()
    assert "is back (round" in page


def test_a_server_that_loses_power_continues_from_its_last_round(tmp_path, network):
    """All its processes are killed at once in round 2. The clients stay, and reconnect by themselves; the
    resumed run ends with the numbers of one that was never interrupted."""
    experiment = {**EXPERIMENT, "rounds": 3, "evaluate": {"every": 3, "on": "test"}, "partition": FOUR}
    with Deployment(tmp_path, network, experiment, clients=4) as there:
        there.start_server()
        there.start_clients(4)
        there.start_run(round_timeout=300)
        there.clients[0].wait_for("Receiving: train message", 200, times=2)
        there.kill(there.server)
        there.start_server()
        run = there.start_run(round_timeout=300, resume=str(there.results()))
        assert there.wait_for_run(run, 300) == "finished:completed"
    rows, expected = read_rows(there.results()), simulate(experiment)
    assert sorted(number for number, metric in rows if metric == "round.lost") == [1, 2, 3]
    for metric in ("global.accuracy", "global.loss"):
        assert rows[3, metric] == pytest.approx(expected[metric], abs=1e-6)


def test_clients_load_their_data_by_a_function_and_get_their_model_with_the_app(
    tmp_path, network, monkeypatch
):
    """The author's network and loader are nowhere else; one client has a loader of its own instead."""
    author = tmp_path / "author"
    author.mkdir()
    (author / "network.py").write_text(NETWORK)
    (author / "ward.py").write_text(WARD.format(offset=0.0))
    (tmp_path / "own_ward.py").write_text(WARD.format(offset=1.0))
    monkeypatch.chdir(author)
    experiment = {**EXPERIMENT, "rounds": 1, "method": ["fedavg"], "model": {"name": "network:make"}}
    there = Deployment(tmp_path, network, experiment, clients=4, load="ward:load", wanted=4)
    assert (there.app / "network.py").exists()
    with there:
        there.start_server()
        (author / "network.py").unlink()
        (author / "ward.py").unlink()
        for number in range(3):
            there.start_client(number, "--part", str(number))
        there.start_client(3, "--load", "own_ward:load")
        for client in there.clients.values():
            client.wait_for("SuperNode ID:")
        run = there.start_run(round_timeout=300)
        assert there.wait_for_run(run, 400) == "finished:completed", there.server.text[-3000:]
    sizes = {
        name: read_rows(there.results(), name)[1, "personal.test_size"]
        for name in (f"client-{number}" for number in range(4))
    }
    assert set(sizes.values()) == {8.0}  # a fifth of forty
    assert read_rows(there.results())[1, "global.loss"] < math.log(2)  # less than before it learned anything
