"""One admitted client does its worst: the others train on, the model stays theirs, and it is named."""

import io
import json
import pickle
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedcohort.core.state import pack
from fedcohort.data.revealed import Revealed
from fedcohort.flower import messages
from fedcohort.flower.messages import NonsenseError, Payload
from fedcohort.flower.transport import Silence, Transport
from fedcohort.runs.events import read_events
from fedcohort.runs.experiment import config_hash
from fedcohort.runs.run import Result
from fedcohort.util.errors import UserError
from fedcohort.util.names import natural
from support.flower_tiny import CLIENTS, experiment, nodes, through_flower
from support.inprocess import FIRST, InProcess
from support.misbehaviour import BAD, BROKEN, log_of, rewritten, values
from support.rehearsed import ONE_ROUND, attacked, honest

Attack = Callable[[Message], Message]
NPY = "numpy.ndarray"


class Bomb:
    """What a pickle can do to who opens it."""

    exploded = False

    def __reduce__(self) -> tuple:
        return setattr, (Bomb, "exploded", True)


def saved(array: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", saved(np.zeros(1 << 20)))
    return file.getvalue()


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


BOMBS = np.array([Bomb()], dtype=object)
ARRAYS = {
    "a header of 10^12 numbers": Array("float32", (10**12,), NPY, header((10**12,))),
    "a header that says more than the shape": Array("float32", (140,), NPY, header((10**12,))),
    "nothing of an endless kind": Array("float32", (0, 10**15), NPY, header((0, 10**15))),
    "a negative side": Array("float32", (-1, -140), NPY, header((140,)) + bytes(560)),
    "a side that numpy would work out": Array("float32", (-1,), NPY, header((-1,)) + bytes(4)),
    "an archive": Array("float32", (140,), NPY, npz()),
    "a pickle": Array("float32", (140,), NPY, pickle.dumps(Bomb())),
    "objects": Array("object", (1,), NPY, saved(BOMBS, allow_pickle=True)),
    "objects called numbers": Array("float32", (1,), NPY, saved(BOMBS, allow_pickle=True)),
    "complex numbers": Array(np.zeros(140, dtype=np.complex64)),
    "words": Array(np.array(["a"] * 140)),
    "dates": Array(np.zeros(140, dtype="datetime64[s]")),
    "another order of bytes": Array("float32", (140,), NPY, saved(np.zeros(140, dtype=">f4"))),
    "too few bytes": Array("float32", (140,), NPY, saved(np.zeros(140, dtype=np.float32))[:-1]),
    "a deep header": Array("float32", (140,), NPY, b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535),
    "another format": Array("float32", (140,), "torch.save", b""),
}


def with_array(array: Array) -> Attack:
    def attack(reply: Message) -> Message:
        reply.content["update"] = ArrayRecord({"delta": array, "buffers": Array(np.zeros(0, np.float32))})
        return reply

    return attack


TEXTS = {
    "deep": "[" * 100_000,
    "deeper than honest": '{"steps": ' + "[" * 900 + "]" * 900 + "}",
    "long": json.dumps({"steps": "x" * (1 << 23)}),
    "no JSON": "{'steps': __import__('os')}",
    "no table": "[1, 2]",
    "long numbers": '{"steps": ' + "9" * 5000 + "}",
}


def with_text(text: str) -> Attack:
    def attack(reply: Message) -> Message:
        reply.content["facts"] = ConfigRecord({"json": text})
        return reply

    return attack


def with_facts(**facts: object) -> Attack:
    return lambda reply: rewritten(reply, facts=facts)


def many_records(reply: Message) -> Message:
    for number in range(messages.RECORDS):
        reply.content[f"record {number}"] = ConfigRecord({})
    return reply


UNREADABLE = {
    **{name: with_array(array) for name, array in ARRAYS.items()},
    **{name: with_text(text) for name, text in TEXTS.items()},
    "many records": many_records,
}


def by_one(kind: str, attack: Attack) -> Callable[[str, int, Message], Message]:
    """What client 2 does when it is asked this."""
    return lambda asked, node, reply: attack(reply) if (asked, node) == (kind, BAD) else reply


def events_of(out: Path) -> list[tuple[str, str]]:
    (directory,) = out.glob("experiment-*/*/")
    return [(event.client, event.what) for event in read_events(directory)]


@cache
def without_client_2(method: str) -> Result:
    """The run in which it simply never answers orders; tests only look at it."""
    with tempfile.TemporaryDirectory() as folder:
        return attacked(Path(folder), method, by_one(messages.TRAIN, BROKEN["crashed"]))


@pytest.mark.parametrize("how", UNREADABLE)
def test_what_cannot_be_read_is_refused_alone(how: str, tmp_path: Path) -> None:
    without = without_client_2("fedavg")
    result = attacked(tmp_path, "fedavg", by_one(messages.TRAIN, UNREADABLE[how]))
    torch.testing.assert_close(result.state.groups[0].weights, without.state.groups[0].weights)
    assert values(result, "rejected") == [1]
    ((client, what),) = events_of(tmp_path)
    assert (client, what.partition(":")[0]) == ("client 2", "is refused")


@pytest.mark.parametrize("how", UNREADABLE)
def test_what_cannot_be_read_costs_no_memory_and_runs_nothing(how: str, tmp_path: Path) -> None:
    reply = Message(RecordDict({"facts": ConfigRecord({"json": "{}"})}), 1, "train")
    content = UNREADABLE[how](reply).content
    tracemalloc.start()
    with pytest.raises(NonsenseError):
        messages.read(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 23
    assert not Bomb.exploded


DIGITS, SURROGATES = "9" * 5000, "\ud800x"
OTHERS = [f"client {number}" for number in range(CLIENTS) if number != 2]
LABELS = {"counts": {"counts": torch.tensor([1e308, 0, 0, 0], dtype=torch.float64)}}
CARDS = {
    "endless sizes": ("fedavg", {"facts": {"sizes": [10**30, 0, 0]}}),
    "most of all samples": ("fedavg", {"facts": {"sizes": [10**11, 5, 5]}}),
    "most of all validation samples": ("fedavg", {"facts": {"sizes": [26, 10**11, 8]}}),
    "most of all test samples": ("fedavg", {"facts": {"sizes": [26, 5, 10**11]}}),
    "counts beyond all sizes": ("fedlecc", LABELS),
    "counts of nobody": ("fedlecc", {"counts": {"counts": torch.zeros(4, dtype=torch.float64)}}),
    "no counts": ("fedlecc", {"counts": {}}),
    "negative counts": (
        "fedlecc",
        {"counts": {"counts": torch.tensor([-1.0, 9, 9, 9], dtype=torch.float64)}},
    ),
    "complex classes": ("fedavg", {"facts": {"classes": [["0"] * 9] * 9}}),
    "a class that is no name": ("fedavg", {"facts": {"classes": [[[]]]}}),
    "a class that is a number": ("fedavg", {"facts": {"classes": [0, 1, 2, 3]}}),
    "classes without end": ("fedavg", {"facts": {"classes": [str(n) for n in range(20_000)]}}),
    "a class that no file can hold": ("fedavg", {"facts": {"classes": [SURROGATES, "1", "2", "3"]}}),
    "a class that paints the terminal": ("fedavg", {"facts": {"classes": ["\x1b[2J", "1", "2", "3"]}}),
    "another shape": ("fedavg", {"facts": {"shape": [10**6]}}),
    "a huge shape": ("fedavg", {"facts": {"shape": [10**30]}}),
    "many sides": ("fedavg", {"facts": {"shape": [1] * 5000}}),
    "other tokens": ("fedavg", {"facts": {"vocabulary": 10}}),
    "no vocabulary": ("fedavg", {"facts": {"vocabulary": None}}),
    "no name": ("fedavg", {"facts": {"name": ""}}),
    "a summary of another shape": (
        "haccs(summary='P(X|y)')",
        {"summaries": {"haccs": torch.zeros(2, dtype=torch.float64)}},
    ),
    "a summary of too many": (
        "clust_psi_pfl(features=3)",
        {"summaries": {"clust_psi_pfl": torch.full((12, 3), 1e300, dtype=torch.float64)}},
    ),
    "no summary": ("clust_psi_pfl(features=3)", {"summaries": {}}),
    "a summary nobody asked for": ("fedavg", {"summaries": {"x": torch.zeros(2)}}),
}


@pytest.mark.parametrize("how", CARDS)
def test_who_lies_about_itself_is_left_out_alone(how: str, tmp_path: Path) -> None:
    method, change = CARDS[how]
    result = attacked(tmp_path, method, by_one(messages.PROFILE, lambda reply: rewritten(reply, **change)))
    assert list(met(tmp_path).clients) == OTHERS
    assert all(value.isfinite().all() for value in result.state.groups[0].weights)
    ((_, what),) = events_of(tmp_path)
    assert what.startswith("does not take part: ")


@pytest.mark.parametrize("facts", [{"sizes": [10**30, 0, 0]}, {"shape": [1] * 5000}, {"shape": [10**30]}])
def test_numbers_have_bounds_also_where_nobody_is_there_to_compare_with(facts: dict, tmp_path: Path) -> None:
    """All clients say it, so that none is odd."""
    attack = with_facts(**facts)
    with pytest.raises(UserError, match="no client can take part"):
        attacked(tmp_path, "fedavg", lambda kind, node, reply: attack(reply))


def met(out: Path) -> Revealed:
    return Revealed.read(next(out.glob("experiment-*/*/roster.safetensors")))


@pytest.mark.parametrize("name", [DIGITS, SURROGATES, "=1+1", "a\nb", "client 1", "client 1 1002"])
def test_a_client_may_call_itself_anything(name: str, tmp_path: Path) -> None:
    """It takes part under a name that can be sorted, written and told from the others'."""
    result = attacked(tmp_path, "fedavg", by_one(messages.PROFILE, with_facts(name=name)))
    clients = met(tmp_path).clients
    assert len(set(clients)) == CLIENTS
    assert all(each.isprintable() and not each.startswith("=") and len(each) < 120 for each in clients)
    assert values(result, "rejected") == values(result, "lost") == [0]


def test_names_are_sorted_by_their_numbers_of_any_length() -> None:
    names = ["client 10", "client 9", f"client {DIGITS}", "client 010", "client", "²"]
    assert sorted(names, key=natural) == ["client", "client 9", "client 010", "client 10", names[2], "²"]


def test_a_client_that_repeats_anothers_new_name(tmp_path: Path) -> None:
    """Two are called alike and get their numbers; a third has called itself what one of them then is."""
    said = {1001: "a", 1002: "a", 1003: "a 1001"}

    def spoil(kind: str, node: int, reply: Message) -> Message:
        known = kind == messages.PROFILE and node in said
        return rewritten(reply, facts={"name": said[node]}) if known else reply

    attacked(tmp_path, "fedavg", spoil)
    assert len(set(met(tmp_path).clients)) == CLIENTS


@pytest.mark.parametrize("loss", [-1.0, float("inf"), 10**400, 1e30, "high", None, [1]])
@pytest.mark.parametrize(("kind", "name"), [(messages.LOSS, "loss"), (messages.SCORE, "train_loss")])
def test_a_loss_that_is_none_counts_as_untold(kind: str, name: str, loss: object, tmp_path: Path) -> None:
    change = {"rounds": 2, "evaluate": {"every": 1}}
    result = attacked(tmp_path, "power_of_choice", by_one(kind, with_facts(**{name: loss})), **change)
    assert result.state.round == 2
    assert "client 2 is refused: a number is not between 0 and 1e+06" in log_of(tmp_path)


@pytest.mark.parametrize("method", ["power_of_choice", "fedlecc"])
def test_a_loss_far_above_all_others_does_not_choose_who_trains(method: str, tmp_path: Path) -> None:
    """It would be chosen in every round; as it is, no more often than one that tells nothing."""

    def spoil(kind: str, node: int, reply: Message) -> Message:
        facts = messages.read(reply.content).facts
        name = {messages.LOSS: "loss", messages.SCORE: "train_loss"}.get(kind, "")
        return rewritten(reply, facts={name: 9.9e5}) if node == BAD and name in facts else reply

    result = attacked(tmp_path, method, spoil, cohort=2, rounds=6, evaluate={"every": 1})
    trained = [row.value for row in result.rows if row.metric == "trained" and row.client == "client 2"]
    assert sum(trained) < 6
    assert "client 2 is refused: its loss is more than 100 times that of most" in log_of(tmp_path)


def with_tensor(memory: str, key: str, value: float | torch.Tensor) -> Attack:
    """The same answer with another tensor, or one of this number everywhere."""

    def attack(reply: Message) -> Message:
        own = messages.read(reply.content).tensors[memory]
        other = value if isinstance(value, torch.Tensor) else torch.full_like(own[key], value)
        return rewritten(reply, **{memory: {**own, key: other}})

    return attack


POISON = {
    "an update without measure": ("fedavg", with_tensor("update", "delta", 1e30), "trust.max_update_ratio"),
    "a control variate without measure": ("scaffold", with_tensor("update", "change", 1e30), "its change is"),
    "a negative loss": ("qfedavg", with_tensor("probes", "loss_before", -1.0), "trust.max_loss"),
    "an endless loss": ("qfedavg(q=3)", with_tensor("probes", "loss_before", 1e30), "trust.max_loss"),
    "a loss that outweighs all": (
        "qfedavg",
        with_tensor("probes", "loss_before", 9.9e5),
        "trust.max_loss_ratio",
    ),
    "losses of steps that outweigh all": (
        "fedgwc",
        with_tensor("trace", "trace", 9.9e5),
        "trust.max_loss_ratio",
    ),
    "a loss that is none": (
        "qfedavg",
        with_tensor("probes", "loss_before", torch.nan),
        "the sent model's loss",
    ),
    "negative losses of steps": ("fedgwc", with_tensor("trace", "trace", -5.0), "trust.max_loss"),
    "endless losses of steps": ("fedgwc", with_tensor("trace", "trace", 1e30), "trust.max_loss"),
    "losses that are none": ("fedgwc", with_tensor("trace", "trace", torch.nan), "trust.max_loss"),
    "outputs above one": ("fedentropy", with_tensor("probes", "outputs", 5.0), "between 0 and 1"),
    "outputs above one in all": ("fedentropy", with_tensor("probes", "outputs", 0.9), "no probabilities"),
    "negative outputs": (
        "fedentropy",
        with_tensor("probes", "outputs", torch.tensor([1.0, 1, -1, 0])),
        "between 0 and 1",
    ),
    "fewer steps, to weigh more": ("fednova", with_facts(steps=1), "other than the"),
    "fewer samples than it has": ("qfedavg", with_facts(size=1), "is not 26: samples"),
    "more samples than it has": ("fedavg", with_facts(size=10**15), "is not 26: samples"),
}


@pytest.mark.parametrize("how", POISON)
def test_poison_is_refused_and_never_averaged(how: str, tmp_path: Path) -> None:
    method, attack, words = POISON[how]
    poisoned = attacked(tmp_path, method, by_one(messages.TRAIN, attack))
    absent = without_client_2(method)
    ours, theirs = pack(poisoned.state), pack(absent.state)
    for key in theirs.keys() - {"bytes"}:
        torch.testing.assert_close(ours[key], theirs[key], equal_nan=True)
    assert values(poisoned, "rejected")[0] == values(absent, "rejected")[0] + 1
    (what,) = (what for client, what in events_of(tmp_path) if client == "client 2")
    assert what.startswith("is refused: ")
    assert words in what


@pytest.mark.parametrize("value", [1e6, 1e30, 3e38])  # the last one is finite, but not its sum
@pytest.mark.parametrize("cohort", [1, 2])
def test_an_update_without_measure_is_refused_where_nobody_has_a_majority(
    cohort: int, value: float, tmp_path: Path
) -> None:
    """In the rounds in which client 2 is one of one or two, the first of them too."""
    spoil = by_one(messages.TRAIN, with_tensor("update", "delta", value))
    result = attacked(tmp_path, "fedavg", spoil, cohort=cohort, rounds=9, evaluate={"every": 20})
    told = events_of(tmp_path)
    assert {client for client, _ in told} == {"client 2"}
    assert all("trust.max_update_ratio" in what for _, what in told)
    assert sum(values(result, "rejected")) == len(told) > 0
    assert float(result.state.groups[0].weights.params.norm()) < 100


def test_how_many_samples_one_of_two_has_is_not_believed_beyond_measure(tmp_path: Path) -> None:
    settings = {"partition": {"name": "iid", "clients": 2}, "cohort": 2}
    grid = InProcess.of(2, keep=str(tmp_path / "keep"))
    grid.spoil = lambda kind, node, reply: (
        rewritten(reply, facts={"sizes": [10**11, 5, 5]}) if node == FIRST else reply
    )
    with pytest.raises(UserError, match=r"client 0 says .* of two nobody can say which is odd"):
        through_flower(experiment("fedavg", **settings), tmp_path, grid)


@pytest.mark.parametrize("reach", [0.0, 1e300, -1.0, float("nan"), "far", None])
def test_how_far_a_client_could_go_is_computed_not_believed(reach: object, tmp_path: Path) -> None:
    told = attacked(tmp_path, "fednova+fedprox", by_one(messages.TRAIN, with_facts(reach=reach)))
    truth, _ = honest("fednova+fedprox", json.dumps(ONE_ROUND, sort_keys=True))
    torch.testing.assert_close(told.state.groups[0].weights, truth.state.groups[0].weights, rtol=0, atol=0)
    assert values(told, "rejected") == [0]


def test_an_update_that_would_break_the_model_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where any update is believed: Adam squares this one, and the others' round still counts."""
    monkeypatch.setattr("fedcohort.flower.engine.outsized", lambda *_: {})
    spoil = by_one(messages.TRAIN, with_tensor("update", "delta", 1e30))
    spoilt = attacked(tmp_path / "spoilt", "fedadam", spoil)
    absent = attacked(tmp_path / "absent", "fedadam", by_one(messages.TRAIN, BROKEN["crashed"]))
    torch.testing.assert_close(spoilt.state.groups[0].weights, absent.state.groups[0].weights)
    assert values(spoilt, "rejected") == [1]
    assert events_of(tmp_path / "spoilt") == [
        ("client 2", "is refused: with its update the model would not be a number")
    ]


@pytest.mark.parametrize(
    ("method", "kind", "attack"),
    [
        ("fedentropy", messages.UPDATE, with_tensor("update", "delta", 1e30)),
        ("fedsoft(groups=2)", messages.SURVEY, with_tensor("answer", "answer", 0.0)),
        ("fedsoft(groups=2)", messages.SURVEY, with_tensor("answer", "answer", torch.tensor([10**18, 1]))),
        ("cafa", messages.CROSS, with_tensor("accuracy", "accuracy", 1e30)),
        ("cfl(eps1=9.0, eps2=0.0)+scaffold", messages.MEMORY, with_tensor("memory", "c", 1e30)),
        ("fedavg", messages.SCORE, with_facts(loss=10**400)),
        ("fedavg", messages.SCORE, with_facts(loss=-1.0)),
        ("fedavg", messages.SCORE, with_facts(right=10**30)),
        ("fedavg", messages.SCORE, with_facts(size=10**30)),
        ("fedavg", messages.SCORE, with_tensor("by_class", "answers", torch.full((4, 4), 2**30).int())),
        ("fedavg", messages.SCORE, with_tensor("by_class", "answers", torch.full((4, 4), 2**62))),
    ],
)
def test_poison_in_other_answers(method: str, kind: str, attack: Attack, tmp_path: Path) -> None:
    asked = []

    def spoil(what: str, node: int, reply: Message) -> Message:
        """By the first who is asked this."""
        asked.extend([node] if what == kind and not asked else [])
        return attack(reply) if what == kind and node in asked else reply

    result = attacked(tmp_path, method, spoil, rounds=3, evaluate={"every": 3})
    liar = f"client {asked[0] - 1001}"
    assert {client for client, what in events_of(tmp_path) if what.startswith("is refused: ")} == {liar}
    for key, value in pack(result.state).items():
        assert bool((value.double().abs() < 1e9).all()), key
    assert 0 <= result.metrics["global.accuracy"] <= 1
    assert 0 <= result.metrics["global.loss"] < 10


def test_what_nobody_foresaw_is_the_senders_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in our own reading that one client can reach: it is refused, and the log has the traceback."""
    monkeypatch.setitem(messages.KINDS_OF_NUMBERS, "float16", "no dtype")
    attack = with_array(Array(np.zeros(140, dtype=np.float16)))
    result = attacked(tmp_path, "fedavg", by_one(messages.TRAIN, attack))
    assert values(result, "rejected") == [1]
    assert events_of(tmp_path) == [("client 2", "is refused: its answer could not be read")]
    assert "an answer of node 1003 could not be read:\nTraceback" in log_of(tmp_path)


def test_a_message_that_flower_cannot_read_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower fetches and then opens; where it cannot open one, all of that fetch are lost."""
    bad: set[str] = set()

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if (kind, node) == (messages.TRAIN, BAD):
            bad.add(reply.metadata.reply_to_message_id)
        return reply

    def pull(self: InProcess, message_ids: Iterable[str]) -> list[Message]:
        found = [self.replies.pop(name) for name in message_ids if name in self.replies]
        if any(reply.metadata.reply_to_message_id in bad for reply in found):
            raise KeyError("no such class of objects")
        return found

    monkeypatch.setattr(InProcess, "pull_messages", pull)
    result = attacked(tmp_path, "fedavg", spoil)
    assert values(result, "rejected") == [1]
    assert values(result, "lost") == [0]
    assert [client for client, _ in events_of(tmp_path)] == ["client 2"]


@dataclass
class HoldsBack(InProcess):
    """Fetching the answer of client 2 takes as long as Flower waits for objects that never come."""

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = list(super().pull_messages(message_ids))
        if any(reply.metadata.src_node_id == BAD for reply in found):
            time.sleep(30)
        return found


def test_an_answer_that_is_announced_and_held_back_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcohort.flower.transport.PATIENCE", 0.2)
    transport = Transport(HoldsBack(nodes(tmp_path).contexts), 1.0)
    asked = experiment("fedavg")
    run = asked.table(asked.methods[0], 0)
    facts = {"run": run, "token": config_hash(run), "client": None, "classes": [], "merge": None}
    letters = dict.fromkeys(sorted(transport.online()), Payload(facts, {}))
    began = time.monotonic()
    answers = transport.ask(messages.PROFILE, letters)
    assert time.monotonic() - began < 10
    assert {node for node, answer in answers.items() if isinstance(answer, Payload)} == letters.keys() - {BAD}
    assert answers[BAD] == Silence("announced an answer and did not send it")


def test_how_much_is_believed_is_the_operators_choice(tmp_path: Path) -> None:
    """Client 2 has a hundred times the data of most, and says so truthfully."""
    honest = by_one(messages.PROFILE, with_facts(sizes=[4501, 5, 5]))
    attacked(tmp_path / "less", "fedavg", honest)
    assert len(met(tmp_path / "less").clients) == CLIENTS - 1
    assert "more than 100 times the samples of most (trust.max_size_ratio)" in log_of(tmp_path / "less")
    attacked(tmp_path / "more", "fedavg", honest, trust={"max_size_ratio": 200})
    assert len(met(tmp_path / "more").clients) == CLIENTS
