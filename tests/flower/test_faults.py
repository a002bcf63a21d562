"""Clients that fail, lie or come back: a round ends without them, and nothing they broke is averaged."""

import time
from pathlib import Path

import pytest
import torch
from flwr.app import Message

from fedcohort.flower import messages
from fedcohort.report import write_report
from fedcohort.runs.events import Event, read_events, summed_up
from fedcohort.runs.run import Result
from fedcohort.util.errors import UserError
from support.flower_tiny import CLIENTS, ROUNDS, experiment, nodes, through_flower
from support.inprocess import FIRST, InProcess
from support.misbehaviour import BAD, BROKEN, log_of, nan_update, rewritten, values
from support.rehearsed import rehearsed

EVERYBODY = {"cohort": CLIENTS, "rounds": 2, "evaluate": {"every": 2}}  # an order is a message of its own


REJECTED = {"junk", "nan", "short", "other names", "huge size", "no size", "many steps", "odd trace"}


def spoiled(grid: InProcess, kind: str, how: object) -> InProcess:
    grid.spoil = lambda asked, node, reply: how(reply) if (asked, node) == (kind, BAD) else reply
    return grid


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in which client 2 simply never answers orders."""
    out = tmp_path_factory.mktemp("without")
    grid = spoiled(rehearsed(out, "fedavg", **EVERYBODY), messages.TRAIN, BROKEN["crashed"])
    return through_flower(experiment("fedavg", **EVERYBODY), out, grid)[0]


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_answer_is_no_answer(how: str, without: Result, tmp_path: Path) -> None:
    grid = spoiled(rehearsed(tmp_path, "fedavg", **EVERYBODY), messages.TRAIN, BROKEN[how])
    result, _ = through_flower(experiment("fedavg", **EVERYBODY), tmp_path, grid, timeout=0.2)
    torch.testing.assert_close(result.state.groups[0].weights, without.state.groups[0].weights)
    assert values(result, "rejected") == [how in REJECTED] * 2
    assert values(result, "lost") == [how not in REJECTED] * 2
    trained = {row.value for row in result.rows if row.metric == "trained" and row.client == "client 2"}
    assert trained == {0.0}
    assert "client 2 " in log_of(tmp_path)
    assert "patient" not in log_of(tmp_path)


@pytest.mark.parametrize(
    ("method", "kind", "change"),
    [
        ("fedlecc", messages.SCORE, {"facts": {"train_loss": "high", "right": -1}}),
        ("power_of_choice", messages.LOSS, {"facts": {"loss": float("nan")}}),
        ("ifca(groups=2)", messages.SURVEY, {"answer": {"answer": torch.tensor(10**6)}}),
        ("ifca(groups=2)", messages.SURVEY, {"answer": {"answer": torch.zeros(5)}}),
        ("fedsoft(groups=2)", messages.SURVEY, {"answer": {"answer": torch.tensor([-5, 5])}}),
        ("cafa", messages.CROSS, {"accuracy": {"accuracy": torch.full((4,), 7.0)}}),
        ("fedentropy", messages.UPDATE, {"update": {}}),
        ("cfl(eps1=9.0, eps2=0.0)+scaffold", messages.MEMORY, {"memory": {"c": torch.full((3,), torch.nan)}}),
    ],
)
def test_nonsense_instead_of_an_answer(method: str, kind: str, change: dict, tmp_path: Path) -> None:
    grid, bad = nodes(tmp_path), list[int]()

    def spoil(asked: str, node: int, reply: Message) -> Message:
        """The first that is asked this."""
        bad.extend([node] if asked == kind and not bad else [])
        return rewritten(reply, **change) if asked == kind and node in bad else reply

    grid.spoil = spoil
    result, _ = through_flower(experiment(method), tmp_path, grid, timeout=0.2)
    assert bad, "nobody was asked this"
    assert result.state.round == ROUNDS
    assert all(group.weights.params.isfinite().all() for group in result.state.groups)
    assert len(result.state.groups) < 5


@pytest.mark.parametrize(
    "change",
    [
        {"counts": {"counts": torch.ones(3)}},
        {"counts": {"counts": torch.tensor([1.0, torch.nan, 1, 1])}},
        {"facts": {"sizes": [1, 2]}},
        {"facts": {"sizes": [-1, 2, 3]}},
        {"facts": {"name": 5}},
        {"facts": {"classes": ["0", "0", "1", "2"]}},
    ],
)
def test_who_describes_itself_wrongly_does_not_take_part(change: dict, tmp_path: Path) -> None:
    grid = rehearsed(tmp_path, "fedlecc", rounds=1)
    spoiled(grid, messages.PROFILE, lambda reply: rewritten(reply, **change))
    result, _ = through_flower(experiment("fedlecc", rounds=1), tmp_path, grid, timeout=0.2)
    assert len(result.state.grouping["group"]) == CLIENTS - 1
    assert "does not take part" in log_of(tmp_path)


def test_the_method_is_told_who_did_not_answer(tmp_path: Path) -> None:
    """A client that never answered has no memory and no value in FedEntropy's bookkeeping: 1, not 3."""
    grid = spoiled(nodes(tmp_path), messages.TRAIN, BROKEN["crashed"])
    result, _ = through_flower(experiment("fedentropy+scaffold", **EVERYBODY), tmp_path, grid)
    assert 2 not in result.state.clients
    assert float(result.state.groups[0].selector["value"][2]) == 1


def test_a_client_that_comes_back_under_another_number_is_known_again(tmp_path: Path) -> None:
    grid = nodes(tmp_path)

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if kind == messages.SCORE and node == BAD:  # gone after the first evaluation, back with a new number
            grid.contexts[5000] = grid.contexts.pop(BAD)
        return reply

    grid.spoil = spoil
    result, _ = through_flower(experiment("fedavg", cohort=CLIENTS), tmp_path, grid)
    assert values(result, "lost") == [0, 0, 0, 0]
    assert "client 2 is back" in log_of(tmp_path)


def test_who_is_offline_is_not_written_to(tmp_path: Path) -> None:
    """It goes after the first evaluation, with which it got its second order."""
    grid = nodes(tmp_path)
    gone = messages.SCORE, BAD
    grid.spoil = lambda kind, node, reply: ((kind, node) == gone and grid.offline.add(BAD)) or reply
    result, _ = through_flower(experiment("fedavg", cohort=CLIENTS, rounds=3), tmp_path, grid)
    assert values(result, "lost") == [0, 0, 1]
    assert values(result, "messages") == [2 * CLIENTS, CLIENTS - 1, CLIENTS - 1]


ENCLOSED = {
    "a code": ({"code": messages.FAILED}, {}, "could not do it"),
    "no answer": ("patient 17 is ill", {}, "unreadable"),
    "nan": (None, {"update": {"delta": torch.full((140,), torch.nan), "buffers": torch.zeros(0)}}, "refused"),
}


@pytest.fixture(scope="module")
def one_round(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Of all clients, in which nothing goes wrong."""
    asked = experiment("fedavg", cohort=CLIENTS, rounds=1)
    return through_flower(asked, tmp_path_factory.mktemp("one_round"))[0]


@pytest.mark.parametrize("how", ENCLOSED)
def test_a_broken_answer_that_came_with_an_evaluation(how: str, one_round: Result, tmp_path: Path) -> None:
    """Of the second round; what was told of the test data counts all the same."""
    trained, tensors, words = ENCLOSED[how]
    grid = nodes(tmp_path)

    def spoil(kind: str, node: int, reply: Message) -> Message:
        facts = messages.read(reply.content).facts
        if (kind, node) != (messages.SCORE, BAD) or "trained" not in facts:
            return reply
        return rewritten(
            reply, facts={"trained": facts["trained"] if trained is None else trained}, **tensors
        )

    grid.spoil = spoil
    result, _ = through_flower(experiment("fedavg", cohort=CLIENTS, rounds=2), tmp_path, grid)
    missing = [values(result, "lost"), values(result, "rejected")]
    assert missing == ([[0, 1], [0, 0]] if how == "a code" else [[0, 0], [0, 1]])
    first = next(row.value for row in result.rows if row.key == "global.accuracy")
    assert first == one_round.metrics["global.accuracy"]
    assert words in log_of(tmp_path)
    assert "patient" not in log_of(tmp_path)


def test_a_run_whose_clients_all_fall_silent_stops(tmp_path: Path) -> None:
    grid = nodes(tmp_path)
    grid.spoil = lambda kind, node, reply: None if kind == messages.TRAIN else reply
    asked = experiment("fedavg", evaluate={"every": ROUNDS})
    with pytest.raises(UserError, match="no client answered in 3 rounds"):
        through_flower(asked, tmp_path, grid, timeout=0.05)


def test_updates_that_never_come_are_silence_too(tmp_path: Path) -> None:
    grid = nodes(tmp_path)
    grid.spoil = lambda kind, node, reply: None if kind == messages.UPDATE else reply
    with pytest.raises(UserError, match="no client answered in 3 rounds"):
        through_flower(experiment("fedentropy"), tmp_path, grid, timeout=0.05)


def test_nobody_there(tmp_path: Path) -> None:
    grid = nodes(tmp_path)
    grid.offline = set(grid.contexts)
    with pytest.raises(UserError, match="no client connected"):
        through_flower(experiment("fedavg"), tmp_path, grid, timeout=0.05)


def test_the_words_of_an_error_stay_at_the_client(tmp_path: Path) -> None:
    """Data that cannot be read: the server learns a code, not the path."""
    grid = nodes(tmp_path)
    grid.contexts[BAD].node_config["data"] = str(tmp_path / "secret-place.csv")
    result, _ = through_flower(experiment("fedavg", rounds=1), tmp_path, grid)
    assert len(result.state.grouping["group"]) == CLIENTS - 1
    replies = [reply for _, node, _, reply in grid.seen if node == BAD]
    assert [messages.read(reply.content).facts for reply in replies] == [{"code": messages.FAILED}]


def test_a_client_that_lost_its_memory_starts_again(tmp_path: Path) -> None:
    """Its first order after the loss fails; the next begins afresh."""
    grid = nodes(tmp_path)
    orders = []

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if kind == messages.TRAIN and node == BAD:
            orders.append(messages.read(reply.content).facts.get("code"))
            for path in (tmp_path / "keep").glob("*/client_2/memory-*"):
                path.unlink()
        return reply

    grid.spoil = spoil
    asked = experiment("scaffold", cohort=CLIENTS, evaluate={"every": ROUNDS})
    result, _ = through_flower(asked, tmp_path, grid)
    assert orders == [None, messages.FORGOT, None, messages.FORGOT]
    assert values(result, "lost") == [0, 1, 0, 1]


def test_a_lost_update_does_not_cost_the_memory(tmp_path: Path) -> None:
    """All updates of round 1 vanish before they are wanted; in round 2 clients go on from round 0."""
    grid, versions = nodes(tmp_path), {1: set[int](), 2: set[int]()}

    def spoil(kind: str, node: int, reply: Message) -> Message:
        sent = messages.read(grid.seen[-1][2].content).facts
        if kind == messages.TRAIN and sent["number"] in versions:
            versions[sent["number"]].add(sent["version"])
        if kind == messages.TRAIN and sent["number"] == 1:
            for path in (tmp_path / "keep").glob("*/*/update-*"):
                path.unlink()
        return reply

    grid.spoil = spoil
    asked = experiment("fedentropy+scaffold", cohort=CLIENTS, rounds=3, evaluate={"every": 3})
    result, _ = through_flower(asked, tmp_path, grid)
    assert versions[2] == versions[1] <= {-1, 0}
    assert 0 in versions[2]
    assert not [row for row in result.rows if row.round == 2 and row.metric == "trained" and row.value]


def test_a_newcomer_is_not_asked(tmp_path: Path) -> None:
    """It comes in the first round; nobody is missing, so it cannot be one of the clients."""
    grid = nodes(tmp_path)

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if kind == messages.TRAIN:
            grid.contexts.setdefault(5000, grid.contexts[FIRST])
        return reply

    grid.spoil = spoil
    through_flower(experiment("fedavg", rounds=2), tmp_path, grid)
    assert 5000 not in {node for _, node, *_ in grid.seen}
    assert log_of(tmp_path).count("node 5000 came after the run began") == 1


def test_somebody_else_in_the_place_of_a_missing_client_is_not_taken(tmp_path: Path) -> None:
    """It is asked once who it is; a client that is there has its name."""
    grid = nodes(tmp_path)

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if kind == messages.TRAIN:
            grid.offline.add(BAD)
            grid.contexts.setdefault(5000, grid.contexts[FIRST])
        return reply

    grid.spoil = spoil
    through_flower(experiment("fedavg", rounds=3), tmp_path, grid, timeout=0.2)
    assert [kind for kind, node, *_ in grid.seen if node == 5000] == [messages.PROFILE]
    assert "client 0, node 5000, is none of the clients" in log_of(tmp_path)


@pytest.mark.parametrize("change", [{"name": "client 9"}, {"sizes": [8, 2, 2]}], ids=["name", "sizes"])
def test_a_missing_client_is_known_by_its_name_and_its_sizes(change: dict, tmp_path: Path) -> None:
    """Somebody comes who has the one and not the other."""
    grid = nodes(tmp_path)

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if kind == messages.TRAIN:
            grid.offline.add(BAD)
            grid.contexts.setdefault(5000, grid.contexts[BAD])
        return rewritten(reply, facts=change) if (kind, node) == (messages.PROFILE, 5000) else reply

    grid.spoil = spoil
    through_flower(experiment("fedavg", rounds=3), tmp_path, grid, timeout=0.2)
    assert [kind for kind, node, *_ in grid.seen if node == 5000] == [messages.PROFILE]


@pytest.mark.parametrize("failures", [1, 3])
def test_a_returning_client_that_cannot_say_who_it_is_is_asked_again(failures: int, tmp_path: Path) -> None:
    """Its first answers are lost. The third one would be too many."""
    grid, asked = nodes(tmp_path), list[int]()

    def spoil(kind: str, node: int, reply: Message) -> Message | None:
        if kind == messages.TRAIN and node == BAD:
            grid.contexts[5000] = grid.contexts.pop(BAD)
        if kind == messages.PROFILE and node == 5000:
            asked.append(node)
            return reply if len(asked) > failures else None
        return reply

    grid.spoil = spoil
    run = experiment("fedavg", cohort=CLIENTS, rounds=5, evaluate={"every": 5})
    result, _ = through_flower(run, tmp_path, grid, timeout=0.1)
    back = failures == 1
    assert values(result, "lost") == ([0, 1, 0, 0, 0] if back else [0, 1, 1, 1, 1])
    assert len(asked) == (2 if back else 3)
    assert ("client 2 is back" in log_of(tmp_path)) == back
    assert ("node 5000 is left out" in log_of(tmp_path)) != back


def test_the_diary_says_what_happened_to_whom(tmp_path: Path) -> None:
    """One client is offline in rounds 2 and 3, another one sends nonsense in round 4."""
    grid, orders = nodes(tmp_path), dict[int, int]()

    def spoil(kind: str, node: int, reply: Message) -> Message:
        if kind != messages.TRAIN:
            return reply
        orders[node] = orders.get(node, 0) + 1
        if (node, orders[node]) == (BAD, 1):
            grid.offline.add(BAD)
        if (node, orders[node]) == (FIRST, 3):
            grid.offline.discard(BAD)
        return nan_update(reply) if (node, orders[node]) == (FIRST, 4) else reply

    grid.spoil = spoil
    asked = experiment("fedavg", cohort=CLIENTS, rounds=5, evaluate={"every": 5})
    through_flower(asked, tmp_path, grid, timeout=0.05)
    (directory,) = tmp_path.glob("experiment-*/*/")
    told = summed_up(read_events(directory))
    assert told == {
        "client 2": "is offline (rounds 2 and 3); is back (round 4)",
        "client 0": "is refused: not a number: delta of its update (round 4)",
    }
    assert f"in this run, client 2: {told['client 2']}" in log_of(tmp_path)
    assert "round 2 of 5: 5 of 6 clients trained, 1 lost, 5 messages" in log_of(tmp_path)
    page = write_report([directory], tmp_path / "report.html").read_text()
    assert "What happened to whom" in page
    assert all(words in page for each in told.items() for words in each)
    assert "34 messages" in page  # 6 + 5 + 5 + 6 + 6 orders and 6 evaluations


def test_a_long_list_of_events_is_summed_up_in_a_moment() -> None:
    """Somebody's directory may hold any number of them; this many once took three minutes."""
    rounds = range(150_000)
    began = time.process_time()
    told = summed_up([Event("", number // 2, "client 1", "went offline") for number in rounds])
    assert time.process_time() - began < 10
    assert told["client 1"].startswith("went offline (rounds 0, 1, 2")
    assert told["client 1"].endswith("and 74999)")
