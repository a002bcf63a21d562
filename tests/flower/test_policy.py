"""A server that asks for more than it may: what a client's own policy lets out, attack by attack.

The client holds 60 patients of three kinds. Everything here is sent as a server could send it.
"""

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from fedcohort.core.profile import Local
from fedcohort.flower import messages
from fedcohort.flower.client_store import RUNS, ClientStore
from fedcohort.flower.messages import Payload
from fedcohort.flower.policy import LOSS_CAP, Policy, Refusal
from fedcohort.runs.experiment import Experiment, config_hash
from support.flower_tiny import experiment
from support.inprocess import FIRST, InProcess

KINDS = {"ill": 31, "well": 22, "unknown": 7}
ASKED = {
    "data": {"source": "table", "path": "not-here.csv", "label": "outcome", "classes": sorted(KINDS)},
    "partition": {"name": "iid", "clients": 1},
    "split": {"test": 0.2, "validation": 0.2},
    "model": "logistic",
    "local": {"lr": 0.1, "batch": 16},
}
SIZE = 38  # of the training data: a fifth of 60 is for tests, a fifth of the rest for validation
EVALUATE = {"version": None, "poll": False, "order": None, "on": "test"}
Ask = Callable[..., Payload]


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    labels = [name for name, count in KINDS.items() for _ in range(count)]
    rows = [f"{random.normal():.3f},{random.normal():.3f},{label}" for label in random.permutation(labels)]
    path = tmp_path / "hospital.csv"
    path.write_text("\n".join(["age,pressure,outcome", *rows]))
    return path


@pytest.fixture
def client(hospital: Path, tmp_path: Path) -> Callable[..., Ask]:
    """A client with this policy, and a way to write to it as the server of some run."""

    def join(method: str = "fedavg", settings: dict[str, Any] | None = None, **policy: Any) -> Ask:
        own = {"data": str(hospital), "label": "outcome", "name": "north", "keep": str(tmp_path / "keep")}
        node = {**own, **{name.replace("_", "-"): value for name, value in policy.items()}}
        grid = InProcess({FIRST: Context(1, FIRST, node, RecordDict(), {})})
        asked = experiment(method, **{**ASKED, **(settings or {})})
        run = asked.table(asked.methods[0], 0)
        usual = {"run": run, "token": config_hash(run), "client": 0}
        usual |= {
            "classes": sorted(KINDS),
            "merge": None,
            "statistics": None,
            "number": 0,
            "version": -1,
            "keep": -1,
        }

        def ask(kind: str, facts: dict[str, Any] | None = None, **tensors: Any) -> Payload:
            payload = Payload({**usual, **(facts or {})}, tensors)
            (name,) = grid.push_messages([Message(messages.write(payload), FIRST, kind, ttl=60)])
            (reply,) = grid.pull_messages([name])
            return messages.read(reply.content)

        return ask

    return join


def a_model(bias: torch.Tensor) -> dict[str, torch.Tensor]:
    """A logistic model that answers every patient alike."""
    return {"params": torch.cat([torch.zeros(2 * len(bias)), bias]), "buffers": torch.zeros(0)}


def always(kind: str) -> dict[str, torch.Tensor]:
    return a_model(50.0 * torch.tensor([float(name == kind) for name in sorted(KINDS)]))


def scored(ask: Ask, model: dict[str, torch.Tensor], **facts: Any) -> dict[str, Any]:
    return ask(messages.SCORE, {**EVALUATE, **facts}, **{"model/0": model}).facts


def by_class(ask: Ask, model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return ask(messages.SCORE, EVALUATE, **{"model/0": model}).tensors.get("by_class", {})


def is_refused(payload: Payload) -> bool:
    return payload.facts == {"code": messages.REFUSED} and not payload.tensors


def told_counts(payload: Payload) -> list[float] | None:
    counts = payload.tensors.get("counts", {}).get("counts")
    return None if counts is None else counts.tolist()


def the_truth(ask: Ask) -> list[float]:
    """Label counts of the training data, as an open client tells them."""
    counts = told_counts(ask(messages.PROFILE))
    assert counts is not None
    return counts


def test_a_server_cannot_call_for_exact_counts(client: Callable[..., Ask]) -> None:
    """The message says 'exact'; the client withholds unless it was told otherwise itself."""
    privacy = {"privacy": {"counts": "exact"}}
    for ask in (client("fedlecc", privacy), client("fedlecc", privacy, privacy="withheld")):
        reply = ask(messages.PROFILE)
        assert told_counts(reply) is None
        assert sorted(reply.tensors.get("summaries", {})) == []
    assert sum(the_truth(client("fedlecc", privacy, privacy="exact"))) == SIZE


def test_noise_cannot_be_asked_away(client: Callable[..., Ask]) -> None:
    """Other client numbers, epsilons, seeds, splits, runs, classes: always the answer that was drawn once."""
    truth = torch.tensor(the_truth(client("fedlecc", privacy="exact")))
    answers = []
    for number in range(30):
        settings = {
            "privacy": {"counts": "noised", "epsilon": 0.1 * (number + 1)},
            "seeds": [number],
            "split": {"test": 0.2, "validation": 0.2},
        }
        ask = client("fedlecc", settings, privacy="noised", epsilon=0.001)
        reply = ask(messages.PROFILE, {"client": number, "token": f"{number:08x}"})
        answers.append(told_counts(reply))
    assert answers.count(answers[0]) == 30
    assert not torch.tensor(answers).mean(0).round().equal(truth)
    asked_otherwise = client("fedlecc", {"split": {"test": 0.5}}, privacy="noised", epsilon=0.001)
    half = told_counts(asked_otherwise(messages.PROFILE))
    assert half is not None
    np.testing.assert_allclose(np.array(half) / sum(half), np.array(answers[0]) / sum(answers[0]))


@pytest.mark.parametrize("asked", [0.01, 1e6])
def test_how_much_noise_is_the_clients_own_choice(asked: float, tmp_path: Path) -> None:
    """Whatever epsilon a run asks for; it counts for the data of the experiment itself only."""
    ledger = Policy("noised", epsilon=0.5, budget=2.0).ledger(tmp_path, asked)
    assert (ledger.epsilon, ledger.budget) == (0.5, 2.0)
    assert Policy("noised", epsilon=0.5).ledger(tmp_path, asked).budget == 0.5
    assert Policy("noised", epsilon=None).ledger(tmp_path, asked).epsilon == asked


def test_a_run_that_asks_for_noise_gets_noise_from_an_open_client_too(client: Callable[..., Ask]) -> None:
    ask = client("fedlecc", {"privacy": {"counts": "noised", "epsilon": 1000.0}}, privacy="exact")
    told = told_counts(ask(messages.PROFILE))
    assert told is not None
    assert told != the_truth(client("fedlecc", privacy="exact"))
    assert sum(told) == pytest.approx(SIZE)


def test_summaries_are_paid_for_too(
    client: Callable[..., Ask],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A budget of two tables: the label counts and one summary; a third is refused. Columns of a table are
    scaled by the client's own mean, which any sample can move: of these there is none with noise."""
    table = client("clust_psi_pfl(features=4)", privacy="noised", budget=1.0)
    assert is_refused(table(messages.PROFILE))
    (tmp_path / "scaled.py").write_text(
        "import numpy as np\ndef load(_):\n    return np.ones((60, 2)), np.arange(60) % 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"data": {"source": "digits"}}
    policy = {"load": "scaled:load", "privacy": "noised", "budget": 1.0, "data": "", "name": "south"}
    classes = {"classes": ["0", "1", "2"]}
    run = client("clust_psi_pfl(features=4)", settings, **policy)
    assert run(messages.PROFILE, classes).tensors["summaries"]["clust_psi_pfl"].shape == (2, 4)
    finer = client("clust_psi_pfl(features=8)", settings, **policy)
    with caplog.at_level(logging.WARNING):
        assert is_refused(finer(messages.PROFILE, classes))
    assert "epsilon 0.5 more, after 1, would exceed the budget of 1" in caplog.text


@pytest.mark.parametrize("privacy", ["withheld", "noised"])
def test_a_quota_does_not_count_the_samples_of_a_class(client: Callable[..., Ask], privacy: str) -> None:
    """How many samples were trained on would say how many there are."""
    order = {"budget": {"lr": 0.1, "batch": 16}, "probes": [], "judged": False}
    quota = {"quota": torch.tensor([10**6, 0, 0])}
    down = a_model(torch.zeros(3))
    for method in ("fedavg", "kl"):
        ask = client(method, privacy=privacy)
        facts = {**order}
        assert is_refused(ask(messages.TRAIN, facts, down=down, quota=quota))
        assert "update" in ask(messages.TRAIN, facts, down=down).tensors
    open_ = client("kl", privacy="exact")
    trained = open_(messages.TRAIN, {**order}, down=down, quota=quota)
    assert trained.facts["size"] == the_truth(client("fedlecc", privacy="exact"))[0]
    plain = client("fedavg", privacy="exact")  # which gives nobody a quota
    assert is_refused(plain(messages.TRAIN, {**order}, down=down, quota=quota))


def test_models_that_always_answer_alike_do_not_count_a_class(client: Callable[..., Ask]) -> None:
    """Right answers would be the class's samples, and the loss as good as their number."""
    ask, open_ = client(), client(privacy="exact")
    for kind in KINDS:
        said, truth = scored(ask, always(kind)), scored(open_, always(kind))
        assert said["right"] in (0, 5, 10, 12)
        assert not by_class(ask, always(kind))
        assert abs(said["right"] - truth["right"]) <= 2.5
        step = LOSS_CAP * 5
        assert said["loss"] % step == pytest.approx(0)
    told = {kind: scored(open_, always(kind))["right"] for kind in KINDS}
    assert by_class(open_, always("ill"))["answers"].tolist() == [
        [told[kind], 0, 0] for kind in sorted(KINDS)
    ]
    assert sum(told.values()) == 12
    assert any(scored(ask, always(kind))["right"] != told[kind] for kind in KINDS)


@pytest.mark.parametrize("size", [1.0, 50.0, 1e6])
def test_a_poll_does_not_count_a_class_either(client: Callable[..., Ask], size: float) -> None:
    """One sample more or less of a class changes nothing that is told, whatever its loss is made."""
    ask = client("power_of_choice")
    for kind in sorted(KINDS):
        hates = a_model(-size * torch.tensor([float(name == kind) for name in sorted(KINDS)]))
        told = ask(messages.LOSS, {"samples": None}, **{"model/0": hates}).facts["loss"]
        step = LOSS_CAP * 5 / SIZE
        assert told / step == pytest.approx(round(told / step), abs=1e-6)
        assert told <= LOSS_CAP


def test_nobody_hears_of_a_single_sample(client: Callable[..., Ask]) -> None:
    """Neither by a poll of one, nor by losses of steps whose batches hold one."""
    model = {"model/0": always("ill")}
    poll = client("power_of_choice", privacy="exact")
    assert is_refused(poll(messages.LOSS, {"samples": 1}, **model))
    assert is_refused(poll(messages.LOSS, {"samples": 16}, **model))  # the method polls on all
    few = client("power_of_choice(variant='cpow-d')", {"local": {"lr": 0.1, "batch": 4}}, privacy="exact")
    assert is_refused(few(messages.LOSS, {"samples": 4}, **model))
    for batch in (1, 4):
        ask = client("fedgwc", {"local": {"lr": 1e-9, "batch": batch}}, privacy="exact")
        order = {"budget": {"lr": 1e-9, "batch": batch}, "probes": [], "judged": False}
        trace = ask(messages.TRAIN, order, down=always("ill")).tensors["trace"]["trace"]
        assert len(trace) == -(-SIZE // batch)
        assert len(set(trace.tolist())) == 1


def test_the_loss_of_a_short_batch_is_the_mean_of_all(client: Callable[..., Ask]) -> None:
    """38 samples in batches of 7: the sixth of each of two epochs has three."""
    trace, local = torch.arange(12.0), Local(batch=7, epochs=2)
    told = Policy("exact", min_samples=4).steps(trace, SIZE, local)
    assert told.tolist() == [0, 1, 2, 3, 4, 5.5, 6, 7, 8, 9, 10, 5.5]
    assert Policy("exact", min_samples=3).steps(trace, SIZE, local).equal(trace)
    assert Policy("exact").steps(trace[:10], SIZE, replace(local, drop_last=True)).equal(trace[:10])
    ask = client("fedgwc", {"local": {"lr": 1e-9, "batch": 7}}, privacy="exact")
    order = {"budget": {"lr": 1e-9, "batch": 7}, "probes": [], "judged": False}
    losses = ask(messages.TRAIN, order, down=always("ill")).tensors["trace"]["trace"].double()
    batches = losses[:5] * 7 / 50  # how many in it are not ill: those of the five full ones
    assert batches.tolist() == pytest.approx(batches.round().tolist(), abs=1e-4)
    assert float(losses[5] * 3 / 50) != pytest.approx(round(float(losses[5] * 3 / 50)), abs=1e-4)


def test_an_update_of_one_sample_is_not_sent(client: Callable[..., Ask]) -> None:
    """One step on a batch of one: its gradient is that sample, and its label."""
    for steps, batch, refused in ((1, 1, True), (4, 1, True), (5, 1, False), (1, 4, True), (1, 5, False)):
        local = {"lr": 1.0, "batch": batch, "steps": steps}
        ask = client("fedavg", {"local": local}, privacy="exact")
        reply = ask(
            messages.TRAIN, {"budget": local, "probes": [], "judged": False}, down=a_model(torch.zeros(3))
        )
        assert is_refused(reply) == refused


@pytest.mark.parametrize("method", ["fedavg", "local_only"])
def test_the_mean_training_loss_does_not_count_a_class(client: Callable[..., Ask], method: str) -> None:
    """At a learning rate of nothing, it is that of the model sent: 50 for each sample of one class."""
    local = {"lr": 1e-18, "batch": 1000}
    order = {"budget": local, "probes": [], "judged": False}
    hates = a_model(torch.tensor([-50.0, 0.0, 0.0]))
    told = client(method, {"local": local})(messages.TRAIN, order, down=hates).tensors["trace"]["trace"]
    step = LOSS_CAP * 5 / SIZE
    assert len(told) == 1
    assert float(told) / step == pytest.approx(round(float(told) / step), abs=1e-4)
    assert float(told) <= LOSS_CAP


def sure(low: float) -> dict[str, torch.Tensor]:
    """Calls everybody above this age the first kind, the others the second."""
    weights = torch.zeros(3, 2)
    weights[0, 0] = 1e6
    bias = torch.tensor([-1e6 * low, 0.0, -1e9])
    return {"params": torch.cat([weights.flatten(), bias]), "buffers": torch.zeros(0)}


def test_mean_outputs_do_not_count_samples(client: Callable[..., Ask]) -> None:
    """FedEntropy asks for them: those of a model that is sure are shares of samples."""
    local = {"lr": 1e-9, "batch": 1000}
    settings = {"local": local, "data": {**ASKED["data"], "scale": "none"}}
    order = {"budget": local, "probes": ["outputs"], "judged": True}
    different = 0
    for low in (-0.5, 0.0, 0.1, 0.5):
        exact, told = (
            client("fedentropy", settings, **policy)(messages.TRAIN, order, down=sure(low)).tensors["probes"]
            for policy in ({"privacy": "exact"}, {})
        )
        counts = (exact["outputs"] * SIZE).round()
        assert int(counts.sum()) == SIZE
        steps = 5 * (counts / 5).round()
        torch.testing.assert_close(told["outputs"], steps / steps.sum())
        different += not torch.allclose(told["outputs"], exact["outputs"], atol=1e-3)
    assert different


def test_the_loss_before_training_does_not_count_a_class(client: Callable[..., Ask]) -> None:
    """q-FedAvg asks for it: of a model that is sure, 50 for each sample of the others, capped."""
    local = {"lr": 1e-9, "batch": 1000}
    order = {"budget": local, "probes": ["loss_before"], "judged": False}
    step = LOSS_CAP * 5 / SIZE
    for kind in KINDS:
        reply = client("qfedavg", {"local": local})(messages.TRAIN, order, down=always(kind))
        loss = float(reply.tensors["probes"]["loss_before"])
        assert loss / step == pytest.approx(round(loss / step), abs=1e-4)
    truth = the_truth(client("fedlecc", privacy="exact"))
    assert any((SIZE - count) % 5 for count in truth)  # which exact losses would tell


def test_accuracies_do_not_count_a_class(client: Callable[..., Ask]) -> None:
    """CAFA asks how models do on validation data: of 10, how many are of the kind that each always says."""
    models = {f"model/{number}": always(kind) for number, kind in enumerate(sorted(KINDS))}
    exact, told = (
        client("cafa", **policy)(messages.CROSS, **models).tensors["accuracy"]["accuracy"]
        for policy in ({"privacy": "exact"}, {})
    )
    held = 10
    assert float(exact.sum()) == pytest.approx(1)
    assert any(round(float(each) * held) % 5 for each in exact)
    assert not any(round(float(each) * held) % 5 for each in told)


def test_words_that_count_as_empty_are_the_clients_own(client: Callable[..., Ask], hospital: Path) -> None:
    """A server that chose them could have rows dropped and categories counted, by what is in them."""
    head, *rows = hospital.read_text().splitlines()
    hospital.write_text("\n".join([head, *(f"7,7,{row.rpartition(',')[2]}" for row in rows)]))
    for kind in KINDS:
        data = {**ASKED["data"], "empty": ["7", kind], "missing": "mean"}
        assert sum(client("fedavg", {"data": data})(messages.PROFILE).facts["sizes"]) == 60
    own = client("fedavg", {"data": {**ASKED["data"], "missing": "mean"}}, empty="7,unknown")
    assert sum(own(messages.PROFILE).facts["sizes"]) == 60 - KINDS["unknown"]


def test_counts_of_another_column_are_another_question(tmp_path: Path) -> None:
    """Where the client does not say which column holds labels, a server could count one after another."""
    path = tmp_path / "t.csv"
    rows = (f"{n},{'mf'[n % 2]},{'ill' if n % 3 else 'well'}" for n in range(60))
    path.write_text("\n".join(["age,sex,outcome", *rows]))

    def refused(column: str, **own: str) -> bool:
        node = {"data": str(path), "keep": str(tmp_path), "privacy": "noised", "name": "a", **own}
        grid = InProcess({FIRST: Context(1, FIRST, node, RecordDict(), {})})
        data = {"source": "table", "path": "x", "label": column}
        asked = experiment("fedlecc", **{**ASKED, "data": data})
        run = asked.table(asked.methods[0], 0)
        facts = {"run": run, "token": config_hash(run), "client": 0, "classes": [], "merge": None}
        letter = Message(messages.write(Payload(facts, {})), FIRST, messages.PROFILE, ttl=60)
        (reply,) = grid.pull_messages(grid.push_messages([letter]))
        return is_refused(messages.read(reply.content))

    assert [refused("outcome"), refused("sex"), refused("outcome")] == [False, True, False]
    mine = {"label": "outcome", "name": "b"}  # whatever the run calls it, this is the one that is read
    assert [refused("outcome", **mine), refused("sex", **mine)] == [False, False]


def test_whether_noise_is_told_does_not_depend_on_the_data(tmp_path: Path) -> None:
    """A threshold is another question, whether or not it parts the labels in another way."""
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["x,lab", *(f"{row % 5},{10 * row}" for row in range(40))]))
    own = {"data": str(path), "label": "lab", "name": "a", "keep": str(tmp_path), "privacy": "noised"}
    grid = InProcess({FIRST: Context(1, FIRST, own, RecordDict(), {})})
    refused = []
    for threshold in (201.0, 202.0, 305.0):
        data = {"source": "table", "path": "not-here.csv", "label": "lab", "threshold": threshold}
        asked = experiment("fedlecc", **{**ASKED, "data": data})
        run = asked.table(asked.methods[0], 0)
        facts = {"run": run, "token": config_hash(run), "client": 0, "classes": [], "merge": None}
        (name,) = grid.push_messages(
            [Message(messages.write(Payload(facts, {})), FIRST, messages.PROFILE, ttl=60)]
        )
        (reply,) = grid.pull_messages([name])
        refused.append(is_refused(messages.read(reply.content)))
    assert refused == [False, True, True]


def test_a_message_does_not_fill_memory_or_disk(client: Callable[..., Ask], tmp_path: Path) -> None:
    ask = client(privacy="exact")
    many = {"classes": [*sorted(KINDS), *map(str, range(10_000))]}
    assert ask(messages.PROFILE, {"client": 99_999, **many}).facts["name"] == "north"  # others take no room
    assert is_refused(ask(messages.PROFILE, {"client": 10**6}))
    run = usual_run()
    run["data"] = {**run["data"], "empty": ["z" * 1000] * 500}
    ask(messages.PROFILE, {"run": run})
    assert sum(path.stat().st_size for path in (tmp_path / "keep").rglob("*") if path.is_file()) < 10_000


def test_any_number_of_runs_fills_no_disk(client: Callable[..., Ask], tmp_path: Path) -> None:
    """The run that is going on stays among those that are kept, what was told under noise always."""
    ask, going_on = client("fedlecc", privacy="noised"), {"token": "ab" * 8}
    store = ClientStore(tmp_path / "keep", "ab" * 8, "north")
    ask(messages.PROFILE, going_on)
    store.hold({"delta": torch.zeros(1)}, 0)
    for number in range(3 * RUNS):
        ask(messages.PROFILE, going_on)
        ask(messages.PROFILE, {"token": f"{number:08x}"})
    kept = {path.name for path in (tmp_path / "keep").iterdir()}
    assert len(kept) == RUNS + 1
    assert {"told", "ab" * 8, f"{3 * RUNS - 1:08x}"} < kept
    assert store.held(0) is not None
    assert (tmp_path / "keep" / "told" / "north" / "ledger.json").exists()


def test_few_samples_are_not_spoken_of(client: Callable[..., Ask]) -> None:
    """Three test samples, three for validation, and at a client that wants forty, its training data."""
    small = {"split": {"test": 0.05, "validation": 0.05}}
    said = scored(client("cafa", small, privacy="exact"), always("ill"))
    assert said == {"size": 3, "right": None, "loss": None}
    assert is_refused(client("cafa", small, privacy="exact")(messages.CROSS, **{"model/0": always("ill")}))
    order = {"budget": {"lr": 0.1, "batch": 16}, "probes": [], "judged": False}
    ask = client(privacy="exact", min_samples=40)
    assert is_refused(ask(messages.TRAIN, order, down=a_model(torch.zeros(3))))
    soft = client("fedsoft(groups=2)", privacy="exact", min_samples=40)
    models = {"model/0": always("ill"), "model/1": always("well")}
    assert is_refused(soft(messages.SURVEY, **models))


def test_a_model_of_its_own_is_made_as_agreed_or_not_at_all(client: Callable[..., Ask]) -> None:
    """A few steps make a model that is wrong about nearly everybody less wrong. A client that wants thirty
    samples has so many to test it on, but fewer to train it on, and takes none."""
    how = {"number": 0, "version": -1, "budget": {"lr": 1.0, "batch": 16, "epochs": 2}}
    most = {"split": {"test": 0.6, "validation": 0.1}}
    open_, wary = (client("finetune(epochs=2)", most, privacy="exact", min_samples=few) for few in (5, 30))
    before = scored(open_, always("unknown"))
    assert scored(open_, always("unknown"), adapt=how)["loss"] < before["loss"]
    assert scored(wary, always("unknown"), adapt=how) == before
    longer = {**how, "budget": {**how["budget"], "epochs": 3}}
    for ask, wrong in ((open_, longer), (client(privacy="exact"), how)):
        assert is_refused(ask(messages.SCORE, {**EVALUATE, "adapt": wrong}, **{"model/0": always("ill")}))


def test_a_survey_of_such_models_tells_steps(client: Callable[..., Ask]) -> None:
    """FedSoft asks on how many samples each model is best: of such models, the samples of each class."""
    models = {f"model/{number}": always(kind) for number, kind in enumerate(sorted(KINDS))}
    truth = client("fedsoft(groups=3)", privacy="exact")(messages.SURVEY, **models).tensors["answer"][
        "answer"
    ]
    told = client("fedsoft(groups=3)")(messages.SURVEY, **models).tensors["answer"]["answer"]
    assert truth.sum() == SIZE
    assert truth.tolist() != told.tolist()
    assert all(int(each) % 5 == 0 for each in told)


def shares(kind: str, parts: int) -> dict[str, dict[str, torch.Tensor]]:
    """Models that give a class 0, 1, ... of so many parts: the best is the one that gives it its share."""
    models = {}
    for part in range(parts + 1):
        share = part / parts
        odds = torch.tensor([share if name == kind else (1 - share) / 2 for name in sorted(KINDS)])
        models[f"model/{part}"] = a_model(odds.clamp(1e-6).log())
    return models


@pytest.mark.parametrize("kind", KINDS)
def test_which_of_many_models_fits_best_does_not_count_a_class(client: Callable[..., Ask], kind: str) -> None:
    truth = the_truth(client("fedlecc", privacy="exact"))[sorted(KINDS).index(kind)]
    every = shares(kind, SIZE)
    chosen = client(f"ifca(groups={SIZE + 1})", privacy="exact")(messages.SURVEY, **every).tensors
    assert int(chosen["answer"]["answer"]) == truth  # what an open client tells
    assert is_refused(client("ifca(groups=2)", privacy="exact")(messages.SURVEY, **every))
    assert is_refused(client(f"ifca(groups={SIZE + 1})")(messages.SURVEY, **every))
    assert is_refused(client("ifca(groups=8)")(messages.SURVEY, **shares(kind, 7)))


def test_a_choice_between_models_rests_on_losses_in_steps(client: Callable[..., Ask]) -> None:
    """The second is better by less than a few samples could make it."""
    models = {"model/0": a_model(torch.zeros(3)), "model/1": a_model(torch.tensor([0.2, 0.0, 0.1]))}

    def chosen(**policy: Any) -> int:
        reply = client("ifca(groups=2)", **policy)(messages.SURVEY, **models)
        return int(reply.tensors["answer"]["answer"])

    assert (chosen(privacy="exact"), chosen()) == (1, 0)


def test_only_what_the_method_asks_is_answered(client: Callable[..., Ask]) -> None:
    """FedAvg neither polls, surveys, judges, compares nor remembers."""
    ask, model = client(privacy="exact"), {"model/0": always("ill")}
    for kind in (messages.LOSS, messages.SURVEY, messages.UPDATE, messages.CROSS, messages.MEMORY):
        assert is_refused(ask(kind, {"samples": None}, **model)), kind
    order = {"budget": {"lr": 0.1, "batch": 16}, "judged": False}
    assert is_refused(ask(messages.TRAIN, {**order, "probes": ["loss_before"]}, down=always("ill")))
    assert "train_loss" not in scored(ask, always("ill"), poll=True)
    assert is_refused(ask(messages.TRAIN, {**order, "probes": [], "merge": {"steps": 1, "joined": False}}))
    concat = client("fedconcat(groups=1, rounds=1, steps=3)", privacy="exact")
    encoders = {"encoder/0": always("ill"), "model/0": a_model(torch.zeros(3))}
    assert is_refused(
        concat(messages.SCORE, {**EVALUATE, "merge": {"steps": 10**9, "joined": False}}, **encoders)
    )
    more = {**order, "probes": [], "budget": {"lr": 0.1, "batch": 16, "epochs": 1e4}}
    assert is_refused(ask(messages.TRAIN, more, down=always("ill")))
    two = {**model, "model/1": always("well")}
    assert is_refused(client("power_of_choice")(messages.LOSS, {"samples": None}, **two))


def test_a_run_stays_what_it_was(client: Callable[..., Ask]) -> None:
    token = {"token": "ab" * 8}
    assert client(privacy="exact")(messages.PROFILE, token).facts["name"] == "north"
    assert is_refused(client("fedlecc", privacy="exact")(messages.PROFILE, token))


def test_a_module_is_allowed_with_its_parts_and_no_other_of_a_like_name() -> None:
    policy = Policy(allow=("json",))
    for module in ("json", "json.decoder"):
        policy.check_code({}, f"{module}:loads")
    for module in ("jsonb", "jso", "os"):
        with pytest.raises(Refusal, match=f"--allow {module} allows it"):
            policy.check_code({}, f"{module}:loads")


@pytest.mark.parametrize("where", ["model", "imports", "load"])
def test_no_code_but_what_came_with_the_app_or_is_allowed(
    client: Callable[..., Ask], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that lies about, and one of Python's own."""
    canary = tmp_path / "canary"
    body = f"from pathlib import Path\nPath({str(canary)!r}).touch()\n"
    body += "def model(*_, **__):\n    from torch import nn\n    return nn.Linear(2, 3)\n"
    (tmp_path / "evil.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    change = {"model": {"model": {"name": "evil:model"}}, "imports": {"imports": ["evil"]}}.get(where, {})
    ask = client(privacy="exact")
    run = {**usual_run(), **change}
    if where == "load":
        grid = InProcess(
            {FIRST: Context(1, FIRST, {"partition-id": 0}, RecordDict(), {"load": "evil:model"})}
        )
        payload = Payload({"run": run, "client": 0, "classes": [], "merge": None}, {})
        (name,) = grid.push_messages([Message(messages.write(payload), FIRST, messages.PROFILE, ttl=60)])
        (reply,) = grid.pull_messages([name])
        assert is_refused(messages.read(reply.content))
    else:
        assert is_refused(ask(messages.PROFILE, {"run": run}))
        touch = {"name": "subprocess:run", "args": ["touch", str(canary)]}
        assert is_refused(ask(messages.PROFILE, {"run": {**run, "model": touch}}))
    assert not canary.exists()
    assert "evil" not in sys.modules
    if where == "model":
        assert client(privacy="exact", allow="evil")(messages.PROFILE, {"run": run}).facts["name"] == "north"
        assert canary.exists()


def usual_run() -> dict[str, Any]:
    asked: Experiment = experiment("fedavg", **ASKED)
    return asked.table(asked.methods[0], 0)


def test_code_of_the_app_is_run(
    client: Callable[..., Ask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower unpacks it below its home."""
    app = tmp_path / "home" / "apps" / "some.app"
    app.mkdir(parents=True)
    (app / "bundled.py").write_text(
        "from torch import nn\ndef model(*_, **__):\n    return nn.Linear(2, 3)\n"
    )
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(app))
    monkeypatch.delitem(sys.modules, "bundled", raising=False)
    run = {**usual_run(), "model": {"name": "bundled:model"}}
    assert client(privacy="exact")(messages.PROFILE, {"run": run}).facts["name"] == "north"
    monkeypatch.chdir(app)  # where Python's own modules, which have no file, must not seem to be
    for name in ("sys:exit", "os:system", "builtins:print", "not there:z"):
        odd = {**usual_run(), "model": {"name": name}}
        assert is_refused(client(privacy="exact")(messages.PROFILE, {"run": odd})), name


@pytest.mark.parametrize("number", ["../../../escaped", 10**30, -5, 1.5, True, None])
def test_a_server_names_no_files(client: Callable[..., Ask], number: Any, tmp_path: Path) -> None:
    ask = client("scaffold", privacy="exact")
    order = {"budget": {"lr": 0.1, "batch": 16}, "probes": [], "judged": False}
    down = {**a_model(torch.zeros(3)), "control": torch.zeros(9)}
    for key in ("number", "version"):
        assert "update" not in ask(messages.TRAIN, {**order, key: number}, down=down).tensors
    assert is_refused(ask(messages.PROFILE, {"client": number})) == (number is not None)
    assert not list(tmp_path.rglob("escaped*"))


def test_a_client_with_a_part_reads_no_table_that_a_server_names(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is where its operator keeps data for experiments."""
    own = {"partition-id": 0, "keep": str(tmp_path / "keep")}
    monkeypatch.chdir(tmp_path)

    def asked(path: str) -> Payload:
        grid = InProcess({FIRST: Context(1, FIRST, own, RecordDict(), {})})
        run = {**usual_run(), "data": {**ASKED["data"], "path": path}}
        facts = {"run": run, "token": config_hash(run), "client": 0, "classes": [], "merge": None}
        letter = Message(messages.write(Payload(facts, {})), FIRST, messages.PROFILE, ttl=60)
        (reply,) = grid.pull_messages(grid.push_messages([letter]))
        return messages.read(reply.content)

    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    assert is_refused(asked(str(hospital)))
    assert is_refused(asked(hospital.name))
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("FEDCOHORT_DATA", str(tmp_path / "shared"))
    assert is_refused(asked(str(hospital)))
    assert is_refused(asked(f"{tmp_path}/shared/../{hospital.name}"))
    shared = hospital.rename(tmp_path / "shared" / hospital.name)
    assert sum(asked(str(shared)).facts["sizes"]) == 60


def test_a_client_with_a_part_of_the_experiments_data_hides_nothing() -> None:
    assert Policy.of({"partition-id": 3}) == Policy("exact", epsilon=None, min_samples=1)
    assert Policy.of({"partition-id": 3, "data": "x.csv"}) == Policy()
    assert Policy.of(
        {"load": "a:b", "privacy": "noised", "budget": 2.0, "min-samples": 9, "allow": "a,b.c"}
    ) == (Policy("noised", 0.5, 2.0, 9, ("a", "b.c")))


def test_what_it_refused_is_in_its_log_in_words(
    client: Callable[..., Ask], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        client()(messages.MEMORY)
    assert caplog.messages == ["this client refuses a question for its memory: fedavg asks for none"]
    assert json.dumps(caplog.messages).isascii()
