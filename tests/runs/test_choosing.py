"""Validation samples choose the round and rank methods; test samples are looked at once, for that round."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcohort.cli.progress import Silent
from fedcohort.core import client_store
from fedcohort.core.evaluate import Row
from fedcohort.core.state import State, pack, unpack
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.runs.comparison import carry_out, compare, extend, prepare, reopen, resume
from fedcohort.runs.evaluation import Evaluation
from fedcohort.runs.experiment import Experiment, as_asked
from fedcohort.runs.outcomes.standings import how_ranked, rank, verdict
from fedcohort.runs.own_models import OWN
from fedcohort.runs.recorder import Recorder, read_result
from fedcohort.runs.run import Callback, Result, chosen_state, final_metrics, run
from fedcohort.runs.stored import FinishedRun, RunDir, RunSettings
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError

KEPT = ("state.safetensors", "table.csv", "result.json")
LOOKED = "validation.global.accuracy"
TABLE: dict[str, Any] = {
    "rounds": 8,
    "cohort": 3,
    "data": {"source": "synthetic", "samples": 300, "classes": 4, "features": 5, "spread": 1.5},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 0.2, "min_size": 12},
    "split": {"validation": 0.3},
    "model": "logistic",
    "local": {"batch": 8, "lr": 0.5},
}


def experiment(method: str = "fedavg", on: str = "validation", **changes: Any) -> Experiment:
    evaluate = {"on": on, **changes.pop("evaluate", {})}
    return Experiment.of({**TABLE, "method": [method], "evaluate": evaluate, **changes})


def played(asked: Experiment, engine: type[ReferenceEngine] = ReferenceEngine) -> Result:
    return run(asked.methods[0], asked.task(0), asked.rounds, asked.evaluation, engine=engine)


def curve(rows: Sequence[Row], key: str) -> dict[int, float]:
    return {row.round: row.value for row in rows if row.overall and row.key == key}


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
@pytest.mark.parametrize("method", ["fedavg", "local_only", "clust_psi_pfl", "centralised", "finetune"])
def test_the_best_round_by_validation_is_measured_on_test_samples(
    method: str, engine: type[ReferenceEngine]
) -> None:
    """The same training, looked at both ways: the numbers of test samples are those after that round."""
    ours, theirs = (played(experiment(method, on), engine) for on in ("validation", "test"))
    looked = curve(ours.rows, LOOKED)
    assert list(looked) == list(range(1, 9))
    best = max(looked, key=lambda number: looked[number])  # the first of several
    assert ours.metrics["chosen_round"] == best
    assert ours.metrics[LOOKED] == looked[best]
    for key in ("global.accuracy", "personal.accuracy", "global.macro_f1", "ad", "groups"):
        assert ours.metrics[key] == curve(theirs.rows, key)[best], key
        assert key == "groups" or list(curve(ours.rows, key)) == [8]  # one look, told at the end
    assert ours.metrics["bytes_up"] == theirs.metrics["bytes_up"]  # of all rounds
    assert not any(row.key.startswith("validation") for row in theirs.rows)
    assert len({looked[number] for number in looked}) > 2  # or any round would do


def test_validation_samples_are_those_of_the_clients_validation_rows() -> None:
    asked = experiment(rounds=2)
    result, task = played(asked), asked.task(0)
    held = task.data.validation
    logits = task.model.logits(result.state.groups[0].weights, held.x[held.index])
    right = (logits.argmax(1) == held.y[held.index]).float().mean().item()
    assert curve(result.rows, LOOKED)[2] == pytest.approx(right)
    assert curve(result.rows, "validation.global.samples")[2] == len(held.index)


def test_any_metric_chooses_and_less_loss_is_better() -> None:
    result = played(experiment(evaluate={"metric": "global.loss"}))
    looked = curve(result.rows, "validation.global.loss")
    assert result.metrics["chosen_round"] == min(looked, key=lambda number: looked[number])


def test_patience_ends_a_run_and_keeps_the_best_round() -> None:
    whole = played(experiment())
    looked = list(curve(whole.rows, LOOKED).values())
    for patience in (1, 2, 3):
        ended = played(experiment(evaluate={"patience": patience}))
        expected = next(
            (n for n in range(patience + 1, 9) if max(looked[:n]) == max(looked[: n - patience])), 8
        )
        assert ended.complete
        assert ended.state.round == expected
        best = max(range(expected), key=lambda place: looked[place]) + 1
        assert ended.metrics["chosen_round"] == best
        assert same(ended.chosen, played(experiment(rounds=best)).state)
    assert played(experiment(evaluate={"patience": 1})).state.round < 8  # or nothing ended early


def same(ours: State, theirs: State) -> bool:
    a, b = (pack(each) for each in (ours, theirs))
    return all(torch.equal(a[key], b[key]) for key in a if key.startswith(("group", "clients")))


def test_rounds_between_evaluations_are_never_chosen_unless_they_are_the_last() -> None:
    result = played(experiment(rounds=7, evaluate={"every": 3}))
    looked = curve(result.rows, LOOKED)
    assert list(looked) == [3, 6, 7]
    assert result.metrics["chosen_round"] == max(looked, key=lambda number: looked[number])
    assert same(result.chosen, played(experiment(rounds=int(result.metrics["chosen_round"]))).state)


class StopAfter(Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def after_round(self, state: State, *_: Any) -> bool:
        return state.round == self.number


def go_on(asked: Experiment, directory: Path, stop: int = 0) -> Result:
    """Runs an experiment's method in this directory, from wherever it stands, until round ``stop``."""
    method, task = asked.methods[0], asked.task(0)
    recorder = Recorder(directory, asked.table(method, 0), task.federation.fingerprint(), every=2)
    restored, folder = recorder.open(), directory / "clients"
    wishes = asked.rounds, asked.evaluation, (recorder, StopAfter(stop)), restored
    result = run(method, task, *wishes, folder=folder)
    if result.complete:
        recorder.finish(result.metrics)
    return result


def kept(directory: Path) -> dict[str, bytes]:
    own = [OWN] if (directory / OWN).exists() else []
    return {name: (directory / name).read_bytes() for name in (*KEPT, *own)}


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("method", ["fedavg", "local_only", "scaffold+clust_psi_pfl", "finetune"])
@pytest.mark.parametrize("every", [1, 3])
def test_stopped_and_continued_is_uninterrupted(
    method: str, every: int, on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever round was the best when it was stopped, also where clients' memories are files."""
    if on_disk:
        monkeypatch.setattr(client_store, "IN_MEMORY", 0)
    asked = experiment(method, evaluate={"every": every, "patience": 3, "clients_every": every})
    whole = go_on(asked, tmp_path / "whole")
    assert 0 < whole.metrics["chosen_round"] < whole.state.round or every == 3
    for stop in (1, 2, 5):  # the same run, again and again
        if stop < whole.state.round:
            stopped = go_on(asked, tmp_path / "parts", stop)
            assert (stopped.state.round, stopped.complete) == (stop, False)
    go_on(asked, tmp_path / "parts")
    assert kept(tmp_path / "parts") == kept(tmp_path / "whole")
    last = unpack(
        checkpoint.load(tmp_path / "whole")[0],
        lambda v: client_store.StoredMemories.reopen(tmp_path / "whole/clients", v),
    )
    assert same(chosen_state(last, whole.metrics), whole.chosen)


def test_models_of_clients_own_are_made_of_the_chosen_round(tmp_path: Path) -> None:
    whole = go_on(experiment("finetune"), tmp_path / "whole")
    best = int(whole.metrics["chosen_round"])
    assert best < 8
    go_on(experiment("finetune", on="test", rounds=best), tmp_path / "short")
    assert kept(tmp_path / "whole")[OWN] == kept(tmp_path / "short")[OWN]


def test_a_checkpoint_without_the_best_round_is_refused(tmp_path: Path) -> None:
    asked = experiment()
    plan = prepare(asked, tmp_path)
    job = plan.jobs[0]

    class Early(Silent):
        def begin(self, *about: Any) -> Callback:
            return StopAfter(5)

    with pytest.raises(Exception, match="asked to end"):
        carry_out(plan, Early())
    tensors, facts = checkpoint.load(job.directory)
    assert int(tensors["best"]) < 5
    bare = {key: value for key, value in tensors.items() if not key.startswith("best")}
    for forged in (
        bare,
        {**tensors, "best/round": torch.tensor(99)},
        {**tensors, "best/group/0/weights/params": torch.zeros(3)},
    ):
        checkpoint.save(job.directory, forged, facts)
        with pytest.raises(UserError, match=r"state.safetensors is damaged"):
            resume(job.directory, Silent())
    checkpoint.save(job.directory, tensors, facts)
    assert resume(job.directory, Silent())[0].metrics["chosen_round"] > 0


def test_a_longer_run_goes_on_from_where_the_shorter_one_ended(tmp_path: Path) -> None:
    """Also one that ended early: it has ended then, too."""
    for patience in (None, 2):
        evaluate = {} if patience is None else {"patience": patience}
        home, _ = compare(experiment(rounds=5, evaluate=evaluate), tmp_path / "a", Silent())
        plan = extend(reopen(home), experiment(rounds=8, evaluate=evaluate))
        longer = carry_out(plan, Silent())
        _, direct = compare(experiment(rounds=8, evaluate=evaluate), tmp_path / "b", Silent())
        assert kept(longer[0].directory) == kept(direct[0].directory)


def test_methods_are_ranked_by_validation_samples_and_it_is_said(tmp_path: Path) -> None:
    asked = Experiment.of({**TABLE, "method": ["fedavg", "local_only"], "evaluate": {"on": "validation"}})
    _, outcomes = compare(asked, tmp_path, Silent())
    standings = rank(outcomes)
    assert [standing.ranked_by for standing in standings] == [LOOKED] * 2
    looked = [standing.mean[LOOKED] for standing in standings]
    assert looked == sorted(looked, reverse=True)
    assert f"{standings[0].mean['global.accuracy']:.1%}" in verdict(standings) or standings[0].findings
    assert "validation samples, which also chose the round" in how_ranked(LOOKED)
    assert "on test samples after the last round, as papers do" in how_ranked("global.accuracy")
    for outcome in outcomes:
        settings = RunSettings.read(outcome.directory)
        assert settings.ranked_by == LOOKED
        assert final_metrics(RunDir.read(outcome.directory).rows()) == pytest.approx(
            outcome.metrics, nan_ok=True
        )
        assert FinishedRun.read(outcome.directory).models == 1
        assert read_result(outcome.directory)["chosen_round"] == outcome.metrics["chosen_round"]


# What a file means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "on"),
    [
        ({}, "validation"),
        ({"evaluate": {"every": 2, "metric": "global.macro_f1"}}, "validation"),
        ({"evaluate": {"on": "test"}}, "test"),
        ({"evaluate": {"last": 3}}, "test"),
        ({"split": {"validation": 0}}, "test"),
        ({"split": {"validation": 0.1}}, "validation"),
        ({"conditions": "fedlecc/fmnist"}, "test"),
        ({"sweep": {"conditions": ["fedlecc/fmnist"]}}, "test"),
    ],
)
def test_a_users_file_is_ranked_by_validation_unless_it_says_otherwise(
    table: dict[str, Any], on: str
) -> None:
    meant = as_asked({"method": "fedavg", **table})
    assert meant.get("evaluate", {}).get("on", "test") == on
    experiment = Experiment.of(meant)
    assert experiment.evaluation.on == on
    if "conditions" not in str(table):
        held = table.get("split", {}).get("validation", 0.2 if on == "validation" else 0)
        assert experiment.split.validation == held
        assert any("choose the round" in note for note in experiment.notes) == (
            "split" not in table and on == "validation"
        )


def test_what_was_asked_before_there_was_such_a_choice_means_what_it_meant(tmp_path: Path) -> None:
    """A run's own settings say nothing of it if test samples ranked; a comparison's say it."""
    asked = experiment(on="test", rounds=1)
    assert "on" not in asked.table(asked.methods[0], 0)["evaluate"]
    assert asked.table()["evaluate"]["on"] == "test"
    home, (outcome,) = compare(asked, tmp_path, Silent())
    assert Experiment.read(outcome.directory / "config.toml").evaluation.on == "test"
    text = (home / "experiment.toml").read_text()
    assert 'on = "test"' in text
    (home / "experiment.toml").write_text(text.replace('on = "test"\n', ""))
    assert Experiment.read(home / "experiment.toml").evaluation.on == "test"
    (tmp_path / "config.toml").write_bytes((outcome.directory / "config.toml").read_bytes())
    assert Experiment.read(tmp_path / "config.toml").evaluation.on == "validation"  # a file of one's own


@pytest.mark.parametrize(
    ("evaluate", "words"),
    [
        ({"on": "test", "patience": 3}, "evaluate.patience: it is validation samples that say when to stop"),
        ({"on": "validation", "last": 3}, "evaluate.last: it sums up test accuracy over rounds"),
        ({"on": "validation", "target": 0.5}, "evaluate.target: it sums up"),
        ({"on": "both"}, "evaluate.on"),
        ({"on": "validation", "patience": 0}, "evaluate.patience"),
    ],
)
def test_what_cannot_be_is_refused(evaluate: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Experiment.of({**TABLE, "method": "fedavg", "evaluate": evaluate})


def test_without_validation_rows_nothing_can_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no client has validation samples: set split\.validation"):
        prepare(experiment(split={"validation": 0}), tmp_path)
    with pytest.raises(UserError, match=r"fairavg\(everything=True\) trains on validation samples too"):
        prepare(experiment("fairavg(everything=True)"), tmp_path)
    with pytest.raises(UserError, match=r"clients do not tell what global\.macro_f1 needs"):
        run("fedavg", withheld(), 1, Evaluation(metric="global.macro_f1", on="validation"), engine=Mute)
    assert not list(tmp_path.iterdir())


def withheld() -> Any:
    return experiment().task(0)


class Mute(ReferenceEngine):
    """Clients that tell no labels, which a server finds out when it asks."""

    def score(self, *question: Any, **more: Any) -> Any:
        return super().score(*question, **more)._replace(tally=None)


def test_a_number_that_is_none_is_never_the_best() -> None:
    from fedcohort.runs.run import _Measures

    asked = experiment()
    measures = _Measures(asked.evaluation, asked.methods[0], asked.task(0), None, None)  # type: ignore[arg-type]
    for number, value in enumerate((math.nan, 0.2, 0.2, math.nan), start=1):
        measures.see([Row(number, "validation.global", "", "", "accuracy", value)])
    assert measures.best_round == 2
