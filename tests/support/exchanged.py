"""What was asked and answered in a run through Flower, beside what the schema says of it."""

from typing import NamedTuple

from flwr.app import Message

from fedcohort.core.batchnorm import travelling
from fedcohort.core.roles.optional import Asks
from fedcohort.core.schema import (
    EVERY,
    FACTS,
    INSTRUCTIONS,
    Fields,
    bytes_of,
    cross_fields,
    fields_of,
    model_records,
    survey_fields,
)
from fedcohort.flower import messages
from fedcohort.flower.messages import Payload
from fedcohort.runs.client_messages import answers, orders
from fedcohort.runs.experiment import Experiment
from support.inprocess import InProcess
from support.sizes import size_of_payload, trained_in


class Exchange(NamedTuple):
    """One question to a client and its answer, as Flower carried them, with the schema's fields of both."""

    kind: str
    asked: Fields
    question: Message
    told: Fields
    answer: Message


def exchanges(asked: Experiment, grid: InProcess) -> list[Exchange]:
    """All that this grid carried for the experiment."""
    task, (method,) = asked.task(0), asked.methods
    profile = task.profile(method)
    told = answers(method, profile, asked.privacy, 1, profile.cohort)
    down, model = orders(method, profile, profile.cohort), travelling(task.model.init(0), profile)
    found = []
    for kind, _, sent, reply in grid.seen:
        question, answer = messages.read(sent.content), messages.read(reply.content)
        message, models = messages.KINDS[kind], len(messages.read_models(question))
        given, fields = down[message], told[message]
        if kind in (messages.CROSS, messages.SURVEY):  # of its cohort, of the groups by now
            given = fields_of(model_records([model] * models))
            grouping = method.grouping
            surveys = isinstance(grouping, Asks) and kind == messages.SURVEY
            fields = survey_fields(grouping.answer, models) if surveys else cross_fields(models)
        if kind == messages.SCORE:
            order = down["training"] if question.facts["order"] else ()
            given = (*(given if models else ()), *order)  # who holds its model, or gets it with the order
            assert models or order or question.facts["version"] is not None
        if trained := trained_in(answer) or (kind == messages.TRAIN and answer.facts):
            steps = answers(method, profile, asked.privacy, trained["steps"], profile.cohort)["training"]
            fields = (*fields, *steps) if kind == messages.SCORE else steps
        found.append(Exchange(kind, given, sent, fields, reply))
    return found


def check_listed(found: list[Exchange]) -> None:
    """What is listed is what is sent and what leaves, field by field."""
    for kind, asked, question, told, answer in found:
        sent, heard = messages.read(question.content), messages.read(answer.content)
        assert tensors_in(sent) == {field[:4] for field in asked}, kind
        assert size_of_payload(heard) == bytes_of(told), kind
        assert tensors_in(heard) == {field[:4] for field in told if field.record != FACTS}, kind
        said, message = sent.facts, messages.KINDS[kind]
        unknown = {"scale"} if kind == messages.PROFILE else set()
        assert said.keys() == (EVERY.keys() | INSTRUCTIONS[message].keys()) - unknown
        assert not said.get("order") or said["order"].keys() == INSTRUCTIONS["training"].keys()


def tensors_in(payload: Payload) -> set[tuple]:
    return {field[:4] for field in fields_of(payload.tensors)}
