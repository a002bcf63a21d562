"""A federation of real processes on this machine: TLS, keys, a database, and the numbers of a simulation."""

import subprocess
import sys

import pytest

from support.deployment import EXPERIMENT, Deployment, read_rows, simulate
from support.loopback import own_network

pytestmark = pytest.mark.deploy

OPERATOR = """
import ssl, sys, urllib.error, urllib.request
trust = ssl.create_default_context(cafile=sys.argv[2])
try:
    urllib.request.urlopen(f"https://{sys.argv[1]}/v1/control/start-run", data=b"", context=trust)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_three_clients_train_as_in_simulation_and_a_stranger_is_refused(tmp_path):
    """Strangers have the right certificate, and a key that nobody admitted or none; nor may anybody talk to
    the SuperLink as an operator does."""
    with own_network() as network, Deployment(tmp_path, network, EXPERIMENT, clients=3) as there:
        there.start_server()
        there.start_clients(3)
        there.refuse_stranger()
        run = there.start_run(round_timeout=300)
        door = [sys.executable, "-c", OPERATOR, f"127.0.0.1:{there.port}", str(there.certs / "ca.crt")]
        asked = subprocess.run(network.command(door), capture_output=True, text=True, check=True)
        assert asked.stdout == "404\n"
        assert there.wait_for_run(run, 400) == "finished:completed", there.server.text[-3000:]
    expected, rows = simulate(EXPERIMENT), read_rows(there.results())
    for metric in ("global.accuracy", "global.loss", "personal.accuracy"):
        assert rows[2, metric] == pytest.approx(expected[metric], abs=1e-6)
    assert rows[2, "round.lost"] == 0
    # Three orders, then three evaluations that bring the orders of round 2, then three evaluations.
    assert [rows[number, "round.messages"] for number in (1, 2)] == [6, 3]
    assert "Every client answered all it was asked." in there.report()
