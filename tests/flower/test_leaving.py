"""The list of what leaves a client is what leaves it: every answer of every method, byte by byte."""

from pathlib import Path

import pytest
import torch

from fedcohort.core.profile import Privacy
from fedcohort.flower import messages
from fedcohort.runs.client_messages import leaving
from support.flower_tiny import experiment, through_flower
from support.methods import FEDERATED
from support.sizes import size_of, trained_in

UNMERGED = [text for text in FEDERATED if "fedconcat" not in text]  # later, only a layer is trained


@pytest.mark.parametrize("text", UNMERGED)
def test_what_is_listed_is_what_leaves(text: str, tmp_path: Path) -> None:
    """Two rounds of two local steps, everybody in the cohort."""
    asked = experiment(text, rounds=2, cohort=8, local={"lr": 0.1, "steps": 2})
    task, (method,) = asked.task(0), asked.methods
    listed = {one.message: one.bytes for one in leaving(method, task.profile(method), Privacy(), 2, 8)}
    _, grid = through_flower(asked, tmp_path)
    for kind, _, sent, reply in grid.seen:
        assert messages.KINDS[kind] in listed, f"{kind} is not listed"
        if kind == messages.CROSS:
            assert size_of(reply) <= listed["cross"]  # of its group's cohort
        elif kind == messages.SURVEY:  # of as many groups as there are by now
            answer = method.grouping.answer(
                torch.zeros(len(messages.read_models(messages.read(sent.content))), 1)
            )
            assert size_of(reply) == answer.numel() * answer.element_size() >= listed["survey"]
        else:
            also = listed["training"] if trained_in(messages.read(reply.content)) else 0
            assert size_of(reply) == listed[messages.KINDS[kind]] + also, kind
