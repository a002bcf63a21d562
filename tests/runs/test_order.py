"""The order of rows in a file is nobody's business: clients are ordered by name, on every path."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcohort.cli.progress import Silent
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.diagnosis import diagnose, read_counts
from fedcohort.diagnosis.assign import join_by_counts
from fedcohort.diagnosis.read import read_numbers
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.stored import FinishedRun
from fedcohort.util.names import in_order

SITES = 25
CLASSES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    return np.random.default_rng(4).multinomial(12, np.random.default_rng(3).dirichlet([0.4] * 4, SITES))


def shuffled(lines: list[str], seed: int) -> list[str]:
    """The same rows below the same header."""
    return [lines[0], *np.random.default_rng(seed).permutation(lines[1:])]


def wide(counts: np.ndarray) -> list[str]:
    return [
        f"site,{','.join(CLASSES)}",
        *(f"site{k},{','.join(map(str, row))}" for k, row in enumerate(counts)),
    ]


def long(counts: np.ndarray) -> list[str]:
    """A row per sample, with a number that says little of its class."""
    random, rows = np.random.default_rng(5), ["site,age,kind"]
    for site, row in enumerate(counts):
        for label, number in enumerate(row):
            rows += [f"site{site},{random.normal(label, 2):.2f},{CLASSES[label]}" for _ in range(number)]
    return rows


def both(folder: Path, lines: list[str]) -> list[Path]:
    paths = [folder / name / "t.csv" for name in ("plain", "shuffled")]
    for path, rows in zip(paths, (lines, shuffled(lines, 0)), strict=True):
        path.parent.mkdir()
        path.write_text("\n".join(rows))
    return paths


def test_names_are_sorted_as_people_would() -> None:
    names = ["site10", "site2", "site 1", "north", "site02", "10", "9"]
    assert [names[place] for place in in_order(names)] == [
        "9", "10", "north", "site02", "site2", "site10", "site 1",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [wide, long])
def test_a_diagnosis_finds_the_same_groups(
    tmp_path: Path, counts: np.ndarray, kind: Callable[[np.ndarray], list[str]]
) -> None:
    label = None if kind is wide else "kind"
    read = [read_counts(path, client="site", label=label) for path in both(tmp_path, kind(counts))]
    assert read[0].client_names == read[1].client_names == [f"site{k}" for k in range(SITES)]
    found = [json.dumps(diagnose(*one).to_dict()) for one in read]
    assert found[0] == found[1]


def test_losses_are_read_in_that_order(tmp_path: Path) -> None:
    tables = [read_numbers(path) for path in both(tmp_path, ["id,0,1", "b10,1,2", "b9,3,4", "a,5,6"])]
    for numbers, names, titles in tables:
        assert (names, titles, numbers.tolist()) == (["a", "b9", "b10"], ["0", "1"], [[5, 6], [3, 4], [1, 2]])


def test_runs_and_assignments_are_the_same(tmp_path: Path, counts: np.ndarray) -> None:
    results = []
    for path in both(tmp_path, long(counts)):
        data = {"source": "table", "path": str(path), "label": "kind", "client": "site"}
        table = {
            "method": "clust_psi_pfl+fedlecc",
            "rounds": 2,
            "cohort": 10,
            "model": "logistic",
            "data": data,
        }
        _, (outcome,) = compare(Experiment.of(table), path.parent, Silent())
        run = FinishedRun.read(outcome.directory)
        newcomers = both(path.parent, wide(counts[:5] + 1))
        joined = [join_by_counts(run, read_counts(new, client="site")).to_dict() for new in newcomers]
        assert joined[0] == joined[1]
        told = Experiment.of(table).federation(0).fingerprint(), outcome.metrics, run.group, joined[0]
        results.append(json.dumps(told))
    assert results[0] == results[1]


def test_texts_too(tmp_path: Path) -> None:
    lines = ["who,said,mood", *(f"p{k % 11},word{k} word{k % 5},{k % 2}" for k in range(80))]
    dealt = []
    for path in both(tmp_path, lines):
        data = load("text", path=str(path), text="said", label="mood", client="who")
        dealt.append(federate(data, partitioner("natural"), SplitPlan(test=0.2)))
    assert dealt[0].clients == tuple(f"p{k}" for k in range(11))
    assert dealt[0].fingerprint() == dealt[1].fingerprint()
