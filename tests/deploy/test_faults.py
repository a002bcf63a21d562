"""What goes wrong in real federations, done to one here: it goes on, and says what happened to whom."""

import math

import pytest
from deployment import Deployment, read_rows, simulate
from loopback import own_network
from test_deployment import EXPERIMENT

pytestmark = pytest.mark.deploy

TROUBLE = '''"""A client's part that misbehaves at some clients."""

import time

import torch
from flwr.clientapp import ClientApp

from fedcohort.flower import wire
from fedcohort.flower.client_app import app as honest

FAULTS = {faults!r}  # by part


class Troubled(ClientApp):
    def __call__(self, message, context):
        fault, kind = FAULTS.get(context.node_config["partition-id"]), message.metadata.message_type
        if fault == "slow" and kind == wire.TRAIN and wire.read(message.content).facts["number"] == 1:
            time.sleep(150)
        reply = honest(message, context)
        if kind == wire.TRAIN and fault in ("nan", "shape"):
            letter = wire.read(reply.content)
            spoil = (lambda v: v * torch.nan) if fault == "nan" else (lambda v: v[:-1])
            update = {{key: spoil(value) for key, value in letter.tensors["update"].items()}}
            letter.tensors["update"] = update
            reply.content = wire.write(letter)
        if kind == wire.PROFILE and fault == "counts":
            letter = wire.read(reply.content)
            counts = letter.tensors["counts"]["counts"]
            letter.tensors["counts"] = {{"counts": torch.cat([counts, counts[:1]])}}
            reply.content = wire.write(letter)
        return reply


app = Troubled()
'''


@pytest.fixture
def network():
    with own_network() as network:
        yield network


def test_nonsense_is_refused_lateness_given_up_and_the_rest_averaged(tmp_path, network):
    """Of five clients one sends NaN, one a wrong shape, one is too late in round 2, and one that counts its
    labels wrong does not even take part."""
    experiment = {**EXPERIMENT, "method": ["fedlecc"], "partition": {"name": "iid", "clients": 5}}
    faults = {1: "nan", 2: "shape", 3: "slow", 4: "counts"}
    with Deployment(tmp_path, network, experiment, clients=5) as there:
        (there.app / "fedcohort_app/client_app.py").write_text(TROUBLE.format(faults=faults))
        there.start_server()
        for number in range(5):
            there.start_client(number, "--part", str(number))
        for client in there.clients.values():
            client.wait_for("SuperNode ID:")
        run = there.start_run(round_timeout=100)
        assert there.wait_for_run(run, 500) == "finished:completed"
    told, rows = there.told(), read_rows(there.results())
    for client, what in ((1, "its update is not a number"), (2, "its update has the wrong shape")):
        assert told.count(f"client {client} is refused: {what}") == 2, told[-5000:]
    assert "client 3 did not answer in time" in told
    assert "does not take part: it sent 11 label counts for 10 classes" in told
    assert [(rows[n, "round.lost"], rows[n, "round.rejected"]) for n in (1, 2)] == [(0, 2), (1, 2)]
    assert rows[2, "global.loss"] < math.log(10)  # that of a model that has learnt nothing of ten classes


def test_a_client_killed_in_a_round_is_missed_and_comes_back_by_itself(tmp_path, network):
    """Killed while it trains in round 2. Its own supervisor starts it again; the server, which believes it to
    be there for a minute, refuses it until then. It trains in the last round."""
    experiment = {**EXPERIMENT, "rounds": 5, "evaluate": {"every": 5}}
    with Deployment(tmp_path, network, experiment, clients=3) as there:
        there.start_server()
        for number in range(3):
            there.start_client(number, "--part", str(number))
        for client in there.clients.values():
            client.wait_for("SuperNode ID:")
        run = there.start_run(round_timeout=120)
        victim = there.clients[2]
        victim.wait_for("Receiving: train message", 120, times=2)
        there.kill(victim, "flower-supernode")
        victim.wait_for("not connected; trying again", 30)
        assert there.wait_for_run(run, 500) == "finished:completed"
    rows = read_rows(there.results())
    assert [rows[number, "round.lost"] for number in (1, 2, 5)] == [0, 1, 0]
    told = there.told()
    assert "client 2 went offline" in told or "client 2 did not answer in time" in told, told


def test_a_server_that_loses_power_continues_from_its_last_round(tmp_path, network):
    """All its processes are killed at once in round 3. The clients stay, and reconnect by themselves; the
    resumed run ends with the numbers of one that was never interrupted."""
    experiment = {**EXPERIMENT, "rounds": 4, "evaluate": {"every": 4}}
    with Deployment(tmp_path, network, experiment, clients=3) as there:
        there.start_server()
        for number in range(3):
            there.start_client(number, "--part", str(number))
        for client in there.clients.values():
            client.wait_for("SuperNode ID:")
        there.start_run(round_timeout=300)
        there.clients[0].wait_for("Receiving: train message", 200, times=3)
        there.kill(there.server)
        there.start_server()
        run = there.start_run(round_timeout=300, resume=str(there.results()))
        assert there.wait_for_run(run, 300) == "finished:completed"
    rows, expected = read_rows(there.results()), simulate(experiment)
    assert sorted(number for number, metric in rows if metric == "round.lost") == [1, 2, 3, 4]
    for metric in ("global.accuracy", "global.loss"):
        assert rows[4, metric] == pytest.approx(expected[metric], abs=1e-6)
