"""The page about papers' claims follows their results.csv."""

import csv
import shutil
from pathlib import Path

import pytest
import replications


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders, so that results can be changed."""
    shutil.copytree(replications.PAPERS, tmp_path / "papers")
    monkeypatch.setattr(replications, "PAPERS", tmp_path / "papers")
    return tmp_path / "papers"


def fill(folder: Path, values: dict[str, list[float]]) -> None:
    """A results.csv with these accuracies of methods, seed by seed."""
    with (folder / "results.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["conditions", "method", "scale", "seed", "global.accuracy_last_10"])
        for method, told in values.items():
            rows.writerows(["fedentopt/cifar10", method, "paper", seed, one] for seed, one in enumerate(told))


def line(text: str, claim: str) -> str:
    (found,) = [each for each in text.splitlines() if each.startswith(f"| {claim} |")]
    return found


def test_a_claim_is_told_with_both_numbers_and_its_verdict(papers: Path) -> None:
    ours = {"fedentopt/fedentopt": [0.50, 0.51, 0.49], "fedentopt/fedavg": [0.60, 0.62, 0.61]}
    fill(papers / "fedentopt/table1", ours)
    told = line(replications.page(), "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)")
    assert "-11.0" in told
    assert told.endswith("| 3 | **reversed** |")
    assert "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)" in replications.picture()


def test_two_seeds_leave_a_claim_open(papers: Path) -> None:
    fill(papers / "fedentopt/table1", {"fedentopt/fedentopt": [0.50, 0.51], "fedentopt/fedavg": [0.60, 0.62]})
    text = replications.page()
    still_open = next(each for each in text.splitlines() if each.startswith("- [fedentopt/table1]"))
    assert "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)" in still_open
    assert "| FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1) |" not in text


def test_claims_under_other_readings_are_counted_apart() -> None:
    claims = list(replications.checked("fedlecc"))
    rows = [line.split("|")[1:-1] for line in replications.glance({"fedlecc": claims}).splitlines()[2:]]
    counts = {name.strip(): sum(int(cell) for cell in cells if cell.strip()) for name, *cells in rows}
    apart = sum(each.folder.path.name == "readings" for each in claims)
    assert counts == {"FedLECC": len(claims) - apart, "FedLECC, other readings": apart}
    assert apart


def test_the_paper_s_number_stands_before_ours(papers: Path) -> None:
    fill(papers / "fedentopt/table1", {"fedentopt/fedavg": [0.60, 0.62, 0.61]})
    chapter = replications.page().partition("## FedEntOpt")[2].partition("\n## ")[0]
    assert "| 46.61 ± 0.170 → 61.00 ± 1.000 % |" in chapter


def test_what_is_beyond_the_picture_is_at_its_edge() -> None:
    assert replications.across(99.0) == replications.across(replications.HIGH)
    assert replications.across(0.0) < replications.across(1.0)
