"""Flower's programs under watch: what is started again, what is given up, what is stopped."""

import os
import signal
from pathlib import Path

import pytest

from fedcohort.flower import superlink, supernode
from fedcohort.flower.admission import Admission
from fedcohort.flower.certs import write_certificates
from fedcohort.flower.processes import Process, environment
from fedcohort.flower.superlink import ServerPlaces
from fedcohort.flower.supernode import Client, node_config
from fedcohort.util.errors import UserError
from support.loopback import running_after

COUNT = (
    "import os, pathlib, sys, time\nlog = pathlib.Path({log!r})\nlog.open('a').write(f'{{os.getpid()}} ')\n"
)
ACCEPTED = "print('INFO : SuperNode ID: 7', flush=True)\n"
REFUSED = "print('Exit Code: 305')\nsys.exit(1)\n"
STUCK = "print('SSL/TLS handshake error detected.', flush=True)\n"
WORK = "time.sleep(60)\n"


class Listener:
    """Interrupts, as Ctrl-C would, when it has heard ``word`` so many times."""

    def __init__(self, word: str, times: int = 1) -> None:
        self.word, self.times, self.lines = word, times, list[str]()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if sum(self.word in heard for heard in self.lines) >= self.times:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(supernode, "PAUSE", 0.01)
    monkeypatch.setattr(supernode, "LATER", 0.02)
    certs = tmp_path / "certs"
    write_certificates(certs, [], clients=1)
    return Client("127.0.0.1:1", certs / "ca.crt", certs / "clients/client-0.key", tmp_path / "home")


def starts(log: Path) -> list[int]:
    return [int(word) for word in log.read_text().split()]


@pytest.mark.parametrize("end", [REFUSED, ACCEPTED + REFUSED, ACCEPTED + STUCK + WORK])
def test_a_client_that_is_refused_ends_or_hangs_is_started_again(client, programs, tmp_path, end):
    """The last case is Flower's own: after that line its process lives on and never reconnects."""
    log = tmp_path / "starts"
    programs("flower-supernode", COUNT.format(log=str(log)) + end)
    with pytest.raises(KeyboardInterrupt):
        client.join(Listener("trying again", times=2))
    assert len(starts(log)) == 2
    assert not running_after(lambda: starts(log), 2)
    assert client.home.stat().st_mode & 0o777 == 0o700


def test_a_client_that_was_never_accepted_gives_up_in_the_end(client, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(supernode, "PATIENCE", 0.2)
    programs("flower-supernode", COUNT.format(log=str(tmp_path / "starts")) + REFUSED)
    with pytest.raises(UserError, match=r"operator admitted client-0\.pub"):
        client.join(lambda line: None)


def test_a_client_that_was_accepted_once_never_gives_up(client, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(supernode, "PATIENCE", 0.0)
    log = tmp_path / "starts"
    first = f"if len(log.read_text().split()) == 1: {ACCEPTED}"
    programs("flower-supernode", COUNT.format(log=str(log)) + first + REFUSED)
    with pytest.raises(KeyboardInterrupt):
        client.join(Listener("trying again", times=3))
    assert len(starts(log)) == 3


def test_a_client_that_is_shut_out_asks_less_and_less_often(client, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(supernode, "PATIENCE", 0.5)
    monkeypatch.setattr(supernode, "LATER", 7.0)
    waits = list[float]()
    monkeypatch.setattr(supernode.time, "sleep", lambda seconds: waits.append(seconds))
    log = tmp_path / "starts"
    first = f"if len(log.read_text().split()) == 1: {ACCEPTED}"
    programs("flower-supernode", COUNT.format(log=str(log)) + first + REFUSED)
    with pytest.raises(KeyboardInterrupt):
        client.join(Listener("trying again in 7 seconds"))
    assert 0.01 in waits


def test_an_interrupted_client_leaves_nobody_behind(client, programs, tmp_path):
    """The program has a child of its own that ignores the polite signal, as a training process may."""
    log = tmp_path / "starts"
    child = (
        f"import subprocess\nsubprocess.Popen([sys.executable, '-c', {IGNORANT.format(log=str(log))!r}])\n"
    )
    programs("flower-supernode", COUNT.format(log=str(log)) + child + WORK)
    with pytest.raises(KeyboardInterrupt):
        client.join(Listener("child runs"))
    assert len(starts(log)) == 2
    assert not running_after(lambda: starts(log), 2)


ADMIT = """
import pathlib, sys
log = pathlib.Path({log!r})
log.open("a").write(f"{{sys.argv[3]}} ")
print('{{"success": true, "node-id": ' + str(len(log.read_text().split())) + '}}')
"""
IGNORANT = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path({log!r}).open("a").write(f"{{os.getpid()}} ")
print("child runs", flush=True)
time.sleep(60)
"""


def test_both_programs_of_the_server_are_started_again_and_keys_admitted(tmp_path, programs, monkeypatch):
    monkeypatch.setattr(superlink, "LOOK", 0.01)
    monkeypatch.setattr(superlink, "wait_for_health", lambda *_: None)
    write_certificates(tmp_path / "certs", [], clients=2)
    links, executors, calls = (tmp_path / name for name in ("links", "executors", "calls"))
    once = "if len(log.read_text().split()) == 1: sys.exit(1)\n"
    programs("flower-superlink", COUNT.format(log=str(links)) + once + WORK)
    programs("flower-superexec", COUNT.format(log=str(executors)) + once.replace("sys.exit(1)", STUCK) + WORK)
    programs("flwr", ADMIT.format(log=str(calls)))
    listener = Listener("starting it again", times=2)
    with pytest.raises(KeyboardInterrupt):
        ServerPlaces(tmp_path / "certs", tmp_path / "home").serve(listener)
    assert {"admitted client-0", "admitted client-1", "serving at 127.0.0.1:8443"} <= set(listener.lines)
    assert [Path(line).name for line in calls.read_text().split()] == ["client-0.pub", "client-1.pub"]
    assert not running_after(lambda: starts(links) + starts(executors), 2)


def test_a_server_without_certificates_is_not_started(tmp_path):
    with pytest.raises(UserError, match="fedcohort flower certs"):
        ServerPlaces(tmp_path, tmp_path / "home").serve(print)
    assert not (tmp_path / "home").exists()


def test_nothing_is_sent_home(tmp_path):
    env = environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == env["RAY_USAGE_STATS_ENABLED"] == "0"
    assert env["FLWR_DISABLE_UPDATE_CHECK"] == env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_settings_reach_a_node_as_flower_reads_them():
    from flwr.common.config import parse_config_args

    settings = {"data": "/data/new patients.csv", "label": "died = yes", "partition-id": 3}
    assert parse_config_args([node_config(settings)]) == settings
    with pytest.raises(UserError, match="quotes"):
        node_config({"label": 'the "outcome"'})


def test_a_process_is_heard_without_colours(programs, tmp_path):
    programs("talker", "print('\\033[92mINFO\\033[0m: hello')")
    heard = list[str]()
    process = Process([str(tmp_path / "programs/talker")], environment(tmp_path), heard.append)
    process._child.wait()
    process.stop()
    assert heard == ["INFO: hello"]


def admission(tmp_path: Path) -> Admission:
    (tmp_path / "keys").mkdir(exist_ok=True)
    return Admission(tmp_path / "keys", tmp_path / "admitted.json", "here", environment(tmp_path))


def looked(them: Admission) -> list[str]:
    said = list[str]()
    them.look(said.append)
    return said


def test_a_key_that_is_removed_is_shut_out_for_good(tmp_path, programs):
    """Also one that went while the server was down; and nothing is done twice."""
    calls = tmp_path / "calls"
    programs("flwr", ADMIT.format(log=str(calls)))
    them, key = admission(tmp_path), tmp_path / "keys/ward.pub"
    key.write_text("ecdsa AAAA a comment\n")
    assert looked(them) == ["admitted ward"]
    key.write_text("ecdsa AAAA another comment\n")
    assert looked(them) == looked(admission(tmp_path))[1:] == []
    key.unlink()
    again = admission(tmp_path)
    assert looked(again) == ["shut out ward: its key was removed"]
    key.write_text("ecdsa AAAA\n")
    assert looked(again) == ["ward was shut out, and Flower forgets no key: let that client make a new one"]
    key.write_text("ecdsa BBBB\n")
    assert looked(again) == ["admitted ward"]
    assert calls.read_text().split() == [str(key), "1", str(key)]


def test_a_key_that_could_not_be_admitted_is_tried_again(tmp_path, programs, monkeypatch):
    """Flower's commands print a mistake as JSON and end with success."""
    programs("flwr", 'print(\'{"success": false, "error-message": "no connection"}\')')
    them = admission(tmp_path)
    (tmp_path / "keys/ward.pub").write_text("ecdsa AAAA\n")
    (said,) = looked(them)
    assert said.startswith("could not admit ward: ")
    assert "no connection" in said
    assert looked(them) == []
    programs("flwr", ADMIT.format(log=str(tmp_path / "calls")))
    them.due = dict.fromkeys(them.due, 0.0)
    assert looked(them) == ["admitted ward"]
    assert looked(them) == []
