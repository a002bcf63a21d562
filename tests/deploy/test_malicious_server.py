"""A server that asks for more than it may know, against a client in a process of its own."""

import json
import shutil
from pathlib import Path

import pytest

from support import malicious_server
from support.deployment import EXPERIMENT, Deployment
from support.loopback import own_network
from support.malicious_server import REPLIES, Reply, attacks

pytestmark = pytest.mark.deploy

POLICY: list[str] = []  # options of 'fedcohort flower client': it should be strict without any
NAMES = [attack.name for attack in attacks(Path())]


@pytest.fixture(scope="module")
def replies(tmp_path_factory) -> dict[str, Reply]:
    """What one strict client answers to each letter."""
    folder = tmp_path_factory.mktemp("malice")
    table = folder / "patients.csv"
    rows = [f"{number % 7},{number % 5},{int(number % 7 > 3)}" for number in range(200)]
    table.write_text("\n".join(["pulse,age,outcome", *rows]))
    experiment = {**EXPERIMENT, "method": ["fedavg"], "partition": {"name": "iid", "clients": 1}}
    experiment["privacy"] = {"counts": "withheld"}
    with own_network() as network, Deployment(folder, network, experiment, clients=1, wanted=1) as there:
        shutil.copyfile(malicious_server.__file__, there.app / "fedcohort_app/server_app.py")
        there.start_server()
        client = there.start_client(0, "--data", str(table), "--label", "outcome", *POLICY)
        client.wait_for("SuperNode ID:")
        run = there.start_run(round_timeout=60)
        assert there.wait_for_run(run, 400) == "finished:completed", there.server.text[-5000:]
    said = json.loads((there.app / REPLIES).read_text())
    answers = [Reply(**reply, log=client.text, folder=folder) for reply in said]
    return dict(zip(NAMES, answers, strict=True))


@pytest.mark.parametrize("attack", attacks(Path()), ids=NAMES)
def test_the_client_does_not_fall_for(attack, replies):
    reply = replies[attack.name]
    assert attack.check(reply), reply._replace(log=reply.log[-2000:])
