"""Letters: what the server and a client write to one another, and how Flower carries it.

A letter is a few facts that JSON can hold, and named memories: dicts of tensors. Whatever a letter does not
have is never sent.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedcohort.core.flat import Weights
from fedcohort.core.parts import Memory

# The kinds of messages: Flower's category, and what is asked.
PROFILE = "query.profile"  # who are you, and what may be known of your data
LOSS = "query.loss"  # the loss of a model on your training data
SURVEY = "query.survey"  # the grouping's question about all groups' models
TRAIN = "train"  # one round of local training
UPDATE = "query.update"  # the update of this round, after it was judged
CROSS = "query.cross"  # the accuracy of others' models on your validation data
MEMORY = "query.memory"  # what you remember
SCORE = "evaluate"  # how the model that serves you does on your test data
KINDS = {  # what leaves a client in answer to each, as fedcohort.leaving lists it
    PROFILE: "profile",
    LOSS: "poll",
    SURVEY: "survey",
    TRAIN: "training",
    UPDATE: "update",
    CROSS: "cross",
    MEMORY: "memory",
    SCORE: "evaluation",
}

# Why a client sends nothing else. Never the text of an exception: it may quote data.
FORGOT = "forgot"  # it has no such memory any more
NO_ENCODERS = "no encoders"  # the merged models have not reached it
NOT_FINITE = "not finite"  # its training gave something that is not a number
NOTHING = "nothing"  # it has nothing to do this with: no sample, no update
REFUSED = "refused"  # its own policy forbids it; its own log says what
FAILED = "failed"  # anything else; its own log says what
CODES = (FORGOT, NO_ENCODERS, NOT_FINITE, NOTHING, REFUSED, FAILED)
UNREADABLE = "unreadable"  # what the server calls an answer that is no letter


class Letter(NamedTuple):
    """One message in either direction."""

    facts: dict[str, Any]
    tensors: dict[str, Memory]

    @property
    def bytes(self) -> int:
        """Of the tensors."""
        return sum(
            value.numel() * value.element_size() for own in self.tensors.values() for value in own.values()
        )


def write(letter: Letter, written: dict[int, ArrayRecord] | None = None) -> RecordDict:
    """As Flower sends it; ``written`` spares the second writing of a memory that many letters share."""
    written = {} if written is None else written
    content = RecordDict({"facts": ConfigRecord({"json": json.dumps(letter.facts)})})
    for name, memory in letter.tensors.items():
        if id(memory) not in written:
            arrays = {key: Array(value.detach().contiguous().numpy()) for key, value in memory.items()}
            written[id(memory)] = ArrayRecord(arrays)
        content[name] = written[id(memory)]
    return content


def read(content: RecordDict) -> Letter:
    """The inverse; ValueError for anything that :func:`write` did not make."""
    try:
        facts = json.loads(str(content.config_records["facts"]["json"]))
        if not isinstance(facts, dict):
            raise ValueError("the facts are no table")
        tensors = {
            name: {key: torch.from_numpy(array.numpy().copy()) for key, array in record.items()}
            for name, record in content.array_records.items()
        }
    except (KeyError, TypeError, AttributeError, OSError, EOFError) as error:
        raise ValueError(f"not a letter ({type(error).__name__})") from None
    return Letter(facts, tensors)


def write_models(models: Sequence[Weights], kind: str = "model") -> dict[str, Memory]:
    """Several models in one letter."""
    return {f"{kind}/{number}": weights._asdict() for number, weights in enumerate(models)}


def read_models(letter: Letter, kind: str = "model") -> list[Weights]:
    """The inverse."""
    count = sum(name.startswith(f"{kind}/") for name in letter.tensors)
    return [Weights(**letter.tensors[f"{kind}/{number}"]) for number in range(count)]
