"""Clients that were admitted and then lie, against a server and honest clients that are real processes."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from fedcohort.flower.server_app import TOKEN
from fedcohort.runs.events import Event, read_events
from fedcohort.runs.recorder import read_table
from fedcohort.util import checkpoint
from support import malicious_client
from support.deployment import EXPERIMENT, Deployment, read_rows
from support.loopback import own_network
from support.malicious_client import ATTACKS, HONEST, LIARS, OF_METHODS, SLY

pytestmark = pytest.mark.deploy

CLIENTS = len(HONEST) + len(SLY) + len(LIARS)
METHODS = ["fedavg", "fedlecc", "haccs(summary='P(X|y)', loss_source='last_seen')", *OF_METHODS]
HARMLESS = {  # lies that nobody asks about
    "a name of 5,000 digits",  # whoever has a key is named by the operator
    "a name with surrogates",
    "a reach of 0",  # the server computes it
    "a reach of 1e300",
}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """Five runs of two rounds, with two honest clients and six that attack with every message."""
    folder = tmp_path_factory.mktemp("malice")
    partition = {"name": "iid", "clients": CLIENTS}
    experiment = {
        **EXPERIMENT,
        "method": METHODS,
        "partition": partition,
        "evaluate": {"every": 2, "on": "test"},
    }
    with own_network() as network, Deployment(folder, network, experiment, CLIENTS) as there:
        shutil.copyfile(malicious_client.__file__, there.app / "fedcohort_app/client_app.py")
        there.start_server()
        there.start_clients(CLIENTS)
        run = there.start_run(round_timeout=120)
        there.status = there.wait_for_run(run, 900)
    return there


def attacks(there: Deployment) -> list[dict]:
    """What the liars wrote down."""
    books = there.folder.glob("node-*/fedcohort/attacks")
    return [json.loads(line) for book in books for line in book.read_text().splitlines()]


def runs(there: Deployment) -> dict[str, Path]:
    """The directory of each run, by what clients know it by."""
    return {path.read_text(): path.parent for path in (there.app / "runs").rglob(TOKEN)}


def is_about(event: Event, attack: dict) -> bool:
    name = rf"\bclient[ -]{attack['part']}\b"
    return bool(re.search(name, event.client)) or str(attack["node"]) in event.client


def test_all_runs_complete_whatever_some_clients_answer(there):
    assert there.status == "finished:completed", there.server.text[-5000:]
    assert len(list((there.app / "runs").rglob("result.json"))) == len(METHODS)


def test_every_attack_was_made(there):
    """Else the other tests here say nothing."""
    made = {(attack["kind"], attack["name"]) for attack in attacks(there)}
    every = {(kind, name) for kind, own in ATTACKS.items() for name, _ in own}
    every |= {("train", name) for name, _ in OF_METHODS.values()}
    assert not every - made


def test_events_name_who_attacked(there):
    unnoticed = [
        (attack["kind"], attack["name"])
        for attack in attacks(there)
        if attack["name"] not in HARMLESS
        and not any(is_about(event, attack) for event in read_events(runs(there)[attack["token"]]))
    ]
    assert not unnoticed


def test_as_many_events_as_attacks_on_the_model(there):
    """Each is noticed, and not the attacker once."""
    for token, directory in runs(there).items():
        events = read_events(directory)
        for part in SLY:
            own = [a for a in attacks(there) if (a["part"], a["token"]) == (part, token)]
            own = [attack for attack in own if attack["name"] not in HARMLESS]
            noticed = [event for event in events if own and is_about(event, own[0])]
            assert len(noticed) >= len(own), (directory.name, [a["name"] for a in own], noticed)


def test_honest_clients_train_the_model_and_liars_do_not(there):
    for token, directory in runs(there).items():
        lied = {
            (attack["round"], attack["part"])
            for attack in attacks(there)
            if attack["kind"] == "train" and attack["token"] == token and attack["name"] not in HARMLESS
        }
        trained = {
            (row.round, int(match[0])): bool(row.value)
            for row in read_table(directory / "table.csv")
            if (row.scope, row.metric) == ("cohort", "trained") and (match := re.search(r"\d+$", row.client))
        }
        assert all(trained[number, part] for number in (1, 2) for part in HONEST), directory.name
        assert not any(trained[who] for who in lied), directory.name


def test_the_model_is_finite_and_has_learned(there):
    for directory in runs(there).values():
        tensors, _ = checkpoint.load(directory)
        weights = {key: value for key, value in tensors.items() if key.endswith("params")}
        assert weights
        assert all(bool(value.isfinite().all()) for value in weights.values()), directory.name
        assert read_rows(directory)[2, "global.loss"] < math.log(10), directory.name


@pytest.mark.parametrize(
    ("method", "words"), [("scaffold", "its change is more"), ("qfedavg", "the sent model's loss")]
)
def test_what_a_method_asks_beside_updates_is_refused_for_what_it_is(there, method, words):
    (directory,) = (path for path in runs(there).values() if path.name.startswith(method))
    told = [event.what for event in read_events(directory) if event.client == f"client-{SLY[0]}"]
    assert [words in what for what in told] == [True, True, False], told  # the last of its evaluation
