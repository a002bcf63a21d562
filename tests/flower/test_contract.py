"""Every method through Flower's messages ends where the reference loop ends, and sends what is listed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedcohort.core.disclosure import Disclosed
from fedcohort.data.revealed import Revealed
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.runs.run import run
from fedcohort.util.errors import UserError
from support.exchanged import check_listed, exchanges
from support.flower_tiny import ROUNDS, experiment, nodes, through_flower
from support.methods import FEDERATED

MERGED = [text for text in FEDERATED if "fedconcat" in text]  # later, only a layer is trained
# These need label counts, which only some methods ask for.
BY_LABEL = {"cohort_entropy", "mean_cohort_entropy", "was", "wadb"}

CHOOSING = {  # where training goes too far
    "rounds": 9,
    "data": {"source": "synthetic", "samples": 320, "classes": 4, "features": 12, "spread": 2.0},
    "local": {"lr": 0.5, "batch": 8, "epochs": 3},
    "evaluate": {"on": "validation", "metric": "global.loss", "patience": 3},
}


@pytest.mark.parametrize("text", FEDERATED)
def test_method(text: str, tmp_path: Path) -> None:
    """Where noise is told, the loop is told the same: clients draw it from a source that nothing repeats."""
    rounds = ROUNDS if text in MERGED else ROUNDS - 1
    evaluate = {"every": 2}  # with an order for the next round, and without
    asked = experiment(text, rounds=rounds, evaluate=evaluate)
    ours, grid = through_flower(asked, tmp_path)
    if text not in MERGED:
        check_listed(exchanges(asked, grid))
    task = asked.task(0)
    if asked.methods[0].privacy(asked.privacy).counts == "noised":
        told = Revealed.read(next(tmp_path.glob("experiment-*/*/roster.safetensors")))
        assert told.counts is not None
        assert not told.counts.equal(task.data.counts.double())
        task = replace(task, disclosed=Disclosed(told.counts, dict(told.summaries)))
    theirs = run(asked.methods[0], task, rounds, asked.evaluation, engine=ReferenceEngine)
    assert len(ours.state.groups) == len(theirs.state.groups)
    assert torch.equal(ours.state.grouping["group"], theirs.state.grouping["group"])
    for a, b in zip(ours.state.groups, theirs.state.groups, strict=True):
        torch.testing.assert_close(a.weights, b.weights, rtol=0, atol=1e-6)
    cohorts = [[row for row in rows if row.metric == "trained"] for rows in (ours.rows, theirs.rows)]
    assert cohorts[0] == cohorts[1]
    assert set(ours.state.clients) == set(theirs.state.clients)
    hidden = set() if "counts" in asked.methods[0].uses else set(BY_LABEL)
    assert ours.metrics.keys() == (theirs.metrics.keys() - hidden) | {"messages"}
    for key in ours.metrics.keys() - {"messages", *BY_LABEL}:
        assert ours.metrics[key] == pytest.approx(theirs.metrics[key], abs=1e-5, nan_ok=True), key


def test_what_was_answered_to_two_classes(tmp_path: Path) -> None:
    """Every number of classes, and every count of an answer, as in a simulation."""
    asked = experiment("fedavg", data={"source": "synthetic", "samples": 320, "classes": 2, "features": 12})
    ours, _ = through_flower(asked, tmp_path)
    theirs = run("fedavg", asked.task(0), ROUNDS, asked.evaluation, engine=ReferenceEngine)
    for key in ("auroc", "average_precision", "macro_f1", "majority", "named[1]"):
        assert ours.metrics[f"global.{key}"] == pytest.approx(theirs.metrics[f"global.{key}"], abs=1e-5)
    told = [[row for row in each.rows if row.scope == "answers"] for each in (ours, theirs)]
    assert told[0] == told[1]
    assert sum(row.value for row in told[0]) == ours.metrics["global.samples"]


@pytest.mark.parametrize("on", ["validation", "test"])
def test_numbers_of_classes_that_nobody_tells_are_refused_before_anybody_trains(
    on: str, tmp_path: Path
) -> None:
    evaluate = {"metric": "global.macro_f1", "on": on, "every": 2}
    asked, grid = experiment("fedavg", privacy={"counts": "noised"}, evaluate=evaluate), nodes(tmp_path)
    with pytest.raises(UserError, match=r"clients do not tell what global\.macro_f1 needs, their labels"):
        through_flower(asked, tmp_path, grid)
    assert {kind for kind, *_ in grid.seen} == {"query.profile"}


@pytest.mark.parametrize("text", ["fedavg", "local_only", "scaffold+clust_psi_pfl", "fedlecc", "finetune"])
def test_validation_samples_of_the_clients_choose_the_round(text: str, tmp_path: Path) -> None:
    """Also where the chosen round's models are among what clients remember, several rounds later."""
    asked = experiment(text, **CHOOSING)
    ours, _ = through_flower(asked, tmp_path)
    theirs = run(text, asked.task(0), 9, asked.evaluation, engine=ReferenceEngine)
    assert ours.state.round == theirs.state.round < 9
    for key in ("chosen_round", "validation.global.loss", "global.accuracy", "personal.loss"):
        assert ours.metrics[key] == pytest.approx(theirs.metrics[key], abs=1e-5), key
    for a, b in zip(ours.chosen.groups, theirs.chosen.groups, strict=True):
        torch.testing.assert_close(a.weights, b.weights, rtol=0, atol=1e-5)
