"""The schema is what is sent, byte by byte, down to what Flower puts on the wire; test_contract.py has the
fields of every method."""

import json
import math
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from flwr.common.serde import recorddict_to_proto

from fedcohort.core.schema import FACTS, Fields, answers_of, bytes_of, fields_of
from fedcohort.flower import messages
from support.exchanged import Exchange, exchanges
from support.flower_tiny import CLIENTS, ROUNDS, experiment, through_flower
from support.sizes import numbers, size_of

HEADER = 128  # bytes of a NumPy file before its numbers


def carried(text: str, out: Path) -> list[Exchange]:
    """All of two rounds of two local steps with everybody in the cohort."""
    asked = experiment(text, rounds=2, cohort=CLIENTS, local={"lr": 0.1, "steps": 2})
    return exchanges(asked, through_flower(asked, out)[1])


def test_topk_sends_less(tmp_path: Path) -> None:
    """Of 12 * 8 + 8 + 8 * 4 + 4 = 140 parameters a tenth: 14 values, 14 places, and nothing of their size."""
    (update,) = {each.told for each in carried("topk(0.1)", tmp_path) if each.kind == messages.TRAIN}
    sent = {field.name: (field.shape, field.dtype) for field in update if field.record == "update"}
    assert sent == {
        "values": ((14,), torch.float32),
        "places": ((14,), torch.int32),
        "buffers": ((0,), torch.float32),
    }


@pytest.mark.parametrize("text", ["fedavg", "scaffold", "fedlecc", "topk(0.2)", "cafa", "kl", "ifca"])
def test_every_byte_on_the_wire_is_explained(text: str, tmp_path: Path) -> None:
    """Both ways Flower carries the tensors of the schema, each after a header, the facts as JSON text, and
    the frame of its protocol buffers."""
    for kind, asked, question, told, answer in carried(text, tmp_path):
        for fields, message in ((asked, question), (told, answer)):
            payload = messages.read(message.content)
            held = [HEADER + field.bytes for field in fields if field.record != FACTS]
            words = len(json.dumps(payload.facts))
            wire = recorddict_to_proto(message.content).ByteSize()
            assert wire == sum(held) + words + frame(payload.tensors.keys(), fields, words), kind
            counted = numbers(payload.facts) if message is answer else 0  # instructions are not
            assert bytes_of(fields) == sum(held) - HEADER * len(held) + 8 * counted, kind


AGAIN = {  # messages that bring a model which their client holds already
    "fedavg": "",
    "fedentropy+topk(0.3)": "",
    "cfl(eps1=9.0, eps2=0.0)+scaffold": "",
    "cfl(eps1=9.0, eps2=0.0)+feddyn(scaled=True)": "",
    "fedgwc(tolerance=0.9, min_group=1, unbiased=True)+scaffold": "",
    "fedlecc": messages.TRAIN,
    "fedsoft(groups=2, every=1)": messages.TRAIN,
    "ifca(groups=2, sharing='trunk')+scaffold": messages.TRAIN,
    "cafa": messages.CROSS,
}


@pytest.mark.parametrize("text", AGAIN)
def test_the_bytes_in_results_are_those_that_training_carried(text: str, tmp_path: Path) -> None:
    """But for models that come again. Once all is trained, groupings ask for evaluation alone."""
    asked = experiment(text, evaluate={"every": ROUNDS})
    (method,), (result, grid) = asked.methods, through_flower(asked, tmp_path)
    seen = [each for each in grid.seen if each[0] != messages.SCORE]
    if "survey" in answers_of(method):
        trained = [place for place, (kind, *_) in enumerate(seen) if kind == messages.TRAIN]
        seen = seen[: trained[-1] + 1]
    kinds, model = [kind for kind, *_ in seen], asked.task(0).model.init(0).bytes
    down = sum(bytes_of(fields_of(messages.read(sent.content).tensors)) for _, _, sent, _ in seen)
    assert result.metrics["bytes_up"] == sum(size_of(reply) for *_, reply in seen)
    assert result.metrics["bytes_down"] == down - model * kinds.count(AGAIN[text])
    assert (messages.MEMORY in kinds) == ("memory" in answers_of(method))


def test_encoders_are_sent_once_and_without_their_last_layer(tmp_path: Path) -> None:
    """Two of 12 * 8 + 8 = 104 numbers to everybody, as many bytes as a simulation counts."""
    _, grid = through_flower(experiment("fedconcat(groups=2, rounds=1)", rounds=3, cohort=CLIENTS), tmp_path)
    sent = [fields_of(messages.read(each[2].content).tensors) for each in grid.seen]
    brought = [{f for f in fields if f.record.startswith("encoder/")} for fields in sent]
    assert [len(own) for own in brought if own] == [4] * CLIENTS
    assert all(bytes_of(own) == 2 * 104 * 4 for own in brought if own)


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
