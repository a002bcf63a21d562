"""The schema of what leaves a client is what leaves it: every answer of every method, field by field and
byte by byte, down to what Flower puts on the wire."""

import json
import math
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from flwr.app import Message
from flwr.common.serde import recorddict_to_proto

from fedcohort.core.profile import Privacy
from fedcohort.core.roles.optional import Asks
from fedcohort.core.schema import FACTS, Fields, bytes_of, cross_fields, survey_fields
from fedcohort.flower import messages
from fedcohort.runs.client_messages import answers
from support.flower_tiny import experiment, through_flower
from support.methods import FEDERATED
from support.sizes import numbers, size_of, trained_in

UNMERGED = [text for text in FEDERATED if "fedconcat" not in text]  # later, only a layer is trained
HEADER = 128  # bytes of a NumPy file before its numbers


def told(text: str, out: Path) -> list[tuple[str, Fields, Message]]:
    """Every answer of two rounds of two local steps with everybody in the cohort, and the schema's fields."""
    asked = experiment(text, rounds=2, cohort=8, local={"lr": 0.1, "steps": 2})
    task, (method,) = asked.task(0), asked.methods
    listed = answers(method, task.profile(method), Privacy(), 2, 8)
    _, grid = through_flower(asked, out)
    found = []
    for kind, _, sent, reply in grid.seen:
        fields = listed[messages.KINDS[kind]]
        models = len(messages.read_models(messages.read(sent.content)))
        if kind == messages.CROSS:  # of its group's cohort
            fields = cross_fields(models)
        elif kind == messages.SURVEY:  # of as many groups as there are by now
            assert isinstance(method.grouping, Asks)
            fields = survey_fields(method.grouping, models)
        elif trained_in(messages.read(reply.content)):
            fields = (*fields, *listed["training"])
        found.append((kind, fields, reply))
    return found


@pytest.mark.parametrize("text", [*UNMERGED, "scaffold+topk(0.2)+clip(0.5)"])
def test_what_is_listed_is_what_leaves(text: str, tmp_path: Path) -> None:
    for kind, fields, reply in told(text, tmp_path):
        assert size_of(reply) == bytes_of(fields), kind
        tensors = messages.read(reply.content).tensors
        there = {
            (record, name, tuple(value.shape), value.dtype)
            for record, memory in tensors.items()
            for name, value in memory.items()
        }
        assert there == {tuple(field) for field in fields if field.record != FACTS}, kind


def test_topk_sends_less(tmp_path: Path) -> None:
    """Of 12 * 8 + 8 + 8 * 4 + 4 = 140 parameters a tenth: 14 values, 14 places, and nothing of their size."""
    (update,) = {fields for kind, fields, _ in told("topk(0.1)", tmp_path) if kind == messages.TRAIN}
    sent = {field.name: (field.shape, field.dtype) for field in update if field.record == "update"}
    assert sent == {
        "values": ((14,), torch.float32),
        "places": ((14,), torch.int32),
        "buffers": ((0,), torch.float32),
    }


@pytest.mark.parametrize("text", ["fedavg", "scaffold", "fedlecc", "topk(0.2)", "cafa"])
def test_every_byte_on_the_wire_is_explained(text: str, tmp_path: Path) -> None:
    """Flower carries the tensors of the schema, each after a header, the facts as JSON text, and the frame of
    its protocol buffers."""
    for kind, fields, reply in told(text, tmp_path):
        payload = messages.read(reply.content)
        tensors = [field for field in fields if field.record != FACTS]
        held = [HEADER + field.bytes for field in tensors]
        words = len(json.dumps(payload.facts))
        wire = recorddict_to_proto(reply.content).ByteSize()
        assert wire == sum(held) + words + frame(payload.tensors.keys(), fields, words), kind
        assert bytes_of(fields) == sum(held) - HEADER * len(held) + 8 * numbers(payload.facts), kind


def frame(records: Collection[str], fields: Fields, words: int) -> int:
    """What protocol buffers add to tensors and text: before each a tag and its length; names, kinds and
    shapes."""

    def around(size: int) -> int:
        """A tag and the length of so many bytes, seven bits a byte."""
        return 1 + max(1, math.ceil(size.bit_length() / 7))

    def within(size: int) -> int:
        return around(size) + size

    facts = within(len("json")) + within(within(words))
    total = within(within(len("facts")) + within(within(facts)))
    for record in records:
        inside = 0
        for field in (field for field in fields if field.record == record):
            kind = within(len(str(field.dtype).removeprefix("torch."))) + within(len("numpy.ndarray"))
            shape = within(sum(around(side) - 1 for side in field.shape)) if field.shape else 0
            inside += within(within(len(field.name)) + within(kind + shape + within(HEADER + field.bytes)))
        total += within(within(len(record)) + within(inside))
    return total - words - sum(HEADER + field.bytes for field in fields if field.record != FACTS)
