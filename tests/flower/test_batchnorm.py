"""BatchNorm statistics that stay with clients: numbers as in a simulation, and none in any message."""

from pathlib import Path

import pytest
import torch

from fedcohort.engines.reference import ReferenceEngine
from fedcohort.flower import messages
from fedcohort.runs.client_messages import leaving
from fedcohort.runs.run import run
from support.flower_tiny import CLIENTS, TINY, experiment, through_flower
from support.sizes import size_of

METHODS = ["fedlecc", "ifca(groups=2)", "cafa", "qfedavg", "fedsoft(groups=2)"]
SPLITTING = "scaffold+cfl(eps1=9.0, eps2=0.0)"  # the server asks for what clients remember


@pytest.mark.parametrize("text", [*METHODS, SPLITTING])
def test_same_numbers_and_no_statistics_in_any_message(text: str, tmp_path: Path) -> None:
    changes = {
        "local": {**TINY["local"], "bn": "local"},
        "evaluate": {"every": 2, "adapted": True},
        "rounds": 3,
    }
    asked = experiment(text, model="support.networks:normed", **changes)
    ours, grid = through_flower(asked, tmp_path)
    task = asked.task(0)
    theirs = run(asked.methods[0], task, asked.rounds, asked.evaluation, engine=ReferenceEngine)
    for a, b in zip(ours.state.groups, theirs.state.groups, strict=True):
        torch.testing.assert_close(a.weights, b.weights, rtol=0, atol=1e-6)
    assert set(ours.state.clients) == set(theirs.state.clients)
    for key in ("global.loss", "personal.loss", "adapted.loss", "bytes_up", "bytes_down"):
        assert ours.metrics[key] == pytest.approx(theirs.metrics[key], abs=1e-5), key
    payloads = [messages.read(message.content) for _, _, *both in grid.seen for message in both]
    memories = [memory for payload in payloads for memory in payload.tensors.values()]
    assert any("params" in memory for memory in memories)
    assert not any(memory["buffers"].numel() for memory in memories if "buffers" in memory)


def test_what_is_listed_is_what_leaves(tmp_path: Path) -> None:
    local = {"lr": 0.1, "steps": 2, "bn": "local"}
    asked = experiment("fedavg", rounds=2, cohort=CLIENTS, model="support.networks:normed", local=local)
    task, (method,) = asked.task(0), asked.methods
    listed = {one.message: one for one in leaving(method, task.profile(method), asked.privacy, 2, CLIENTS)}
    assert "buffers" not in listed["training"].what
    _, grid = through_flower(asked, tmp_path)
    for kind, _, _, reply in grid.seen:
        if kind == messages.TRAIN:
            assert size_of(reply) == listed[messages.KINDS[kind]].bytes
