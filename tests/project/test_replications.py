"""The page about papers' claims follows their results.csv."""

import csv
import re
import shutil
from collections import Counter
from pathlib import Path

import claim_charts
import pytest
import replications

from fedcohort.runs.replication.folders import Cell, folders
from fedcohort.stats.paired import Paired
from support import REPOSITORY


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
    pages = replications.pages()
    told = line(pages["replications-fedentopt.md"], "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)")
    assert "| **reversed** | +6.19 points | -11.00 points (" in told
    assert ", 3 seeds | [fedentopt/table1](../papers/fedentopt/table1/README.md), paper |" in told
    assert "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)" in pages["replications-fedentopt-claims.svg"]


def test_two_seeds_leave_a_claim_open(papers: Path) -> None:
    fill(papers / "fedentopt/table1", {"fedentopt/fedentopt": [0.50, 0.51], "fedentopt/fedavg": [0.60, 0.62]})
    text = replications.pages()["replications-fedentopt.md"]
    still_open = next(each for each in text.splitlines() if each.startswith("- [fedentopt/table1]"))
    assert "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)" in still_open
    assert "| FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1) |" not in text


def counted(paper: str) -> dict[str, int]:
    claims = list(replications.checked(paper))
    rows = [line.split("|")[1:-1] for line in replications.glance({paper: claims}).splitlines()[2:]]
    return {name.strip(): sum(int(cell) for cell in cells if cell.strip()) for name, *cells in rows}


def test_what_is_no_table_of_the_papers_is_counted_apart() -> None:
    every = [folder for folder in folders(replications.PAPERS) if folder.paper == "fedlecc"]
    apart = sum(len(folder.claims) for folder in every if folder.ours)
    assert apart
    told = counted("fedlecc")
    assert sum(number for name, number in told.items() if "other readings" in name) == apart
    assert {name.removesuffix(", scaled tests") for name in told} == {"FedLECC", "FedLECC, other readings"}


def test_a_claim_is_counted_once_at_the_paper_s_scale(papers: Path) -> None:
    """Three seeds at the paper's scale and others at the small one."""
    fill(
        papers / "fedentopt/table1", {"fedentopt/fedentopt": [0.6, 0.61, 0.6], "fedentopt/fedavg": [0.5] * 3}
    )
    before = counted("fedentopt")
    path = papers / "fedentopt/table1/results.csv"
    scaled = path.read_text().partition("\n")[2].replace("paper", "small")
    path.write_text(path.read_text() + scaled.replace("0.6", "0.4"))  # which would be another verdict
    claims = [
        each.scale for each in replications.checked("fedentopt") if "Dir(0.1)" in each.judged.claim.about
    ]
    assert "small" in claims
    assert counted("fedentopt") == before


def test_other_data_are_other_claims() -> None:
    """Adult's table has the names of ACSIncome's conditions."""
    claims = [each.judged.claim.about for each in replications.checked("clust-psi-pfl")]
    assert "Adult, S = 0: Clust-PSI-PFL beats FedAvg" in claims
    assert "ACSIncome, S = 0: Clust-PSI-PFL beats FedAvg" in claims


def test_the_paper_s_number_stands_before_ours(papers: Path) -> None:
    fill(papers / "fedentopt/table1", {"fedentopt/fedavg": [0.60, 0.62, 0.61]})
    page = replications.pages()["replications-fedentopt.md"]
    assert "| 46.61 ± 0.170 → 61.00 ± 1.000 % |" in page


@pytest.mark.parametrize(
    ("reached", "told"), [([0.60, 0.62, ""], "61.00 ± 1.414 (2 of 3) %"), (["", "", ""], "none (0 of 3) %")]
)
def test_runs_that_have_no_number_are_told(papers: Path, reached: list[float], told: str) -> None:
    """As of rounds to a target that was never reached."""
    fill(papers / "fedentopt/table1", {"fedentopt/fedavg": reached})
    assert f"→ {told} |" in replications.pages()["replications-fedentopt.md"]


def test_the_words_of_a_paper_stand_on_its_page_and_in_short_on_the_first() -> None:
    pages = replications.pages()
    for paper, name in replications.NAMES.items():
        short, rest = replications.words_of(paper)
        assert short
        assert f"\n- **[{name}](replications-{paper}.md)**: {short}\n" in pages["replications.md"]
        assert pages[f"replications-{paper}.md"].count(f"{short[1:]}\n\n{rest}\n\n") == 1


def test_what_was_not_run_is_told(papers: Path) -> None:
    """Four methods under two conditions, two seeds each."""
    (folder,) = folders(papers, "fedentopt/table1")
    cells = [Cell(under, method) for under in ("one", "two") for method in "abcd"]
    folder.__dict__["cells"] = cells

    def told(**made: int) -> str:
        return replications.not_run(folder, +Counter({cell: made.get(cell.method, 2) for cell in cells}), 2)

    assert replications.not_run(folder, Counter(), 2) == "all"
    assert told() == ""
    assert told(a=0) == "methods `a`"
    assert told(b=1) == "2 cells with 1 of 2 seeds"
    one = Counter(dict.fromkeys(cells[:4], 2))
    assert replications.not_run(folder, one, 2) == "conditions `two`"
    assert replications.not_run(folder, one + Counter(cells[4:7]), 2) == "1 cell; 3 cells with 1 of 2 seeds"


def test_a_table_is_told_with_its_runs() -> None:
    rows = replications.run_table(folders(replications.PAPERS, "cafa/*")).splitlines()
    assert "| [table2](../papers/cafa/table2/README.md) | paper | 15 |  |" in rows
    assert "| [table4](../papers/cafa/table4/README.md) | paper | 0 of 12 | all |" in rows


def test_every_table_says_in_what_it_is_not_the_papers() -> None:
    """No paper states all; without words a run would be called a replication."""
    for folder in folders(replications.PAPERS):
        assert folder.scale("paper").about, folder.name


def test_a_headline_has_a_reason_for_the_verdict_that_it_has() -> None:
    """Words about a verdict that is no more would be left."""
    headlines = replications.headlines(
        {paper: list(replications.checked(paper)) for paper in replications.NAMES}
    )
    for row in headlines.splitlines()[2:]:
        assert not row.endswith("|  |"), row
    assert headlines.count("\n") == 1 + sum(
        bool(claim.why) for folder in folders(replications.PAPERS) for claim in folder.claims
    )


def test_a_headline_is_told_at_the_papers_scale_once_that_has_a_verdict(papers: Path) -> None:
    """The same numbers at the small scale; before, those are all that is known."""
    ours = {"fedentopt/fedentopt": [0.6, 0.61, 0.6], "fedentopt/fedavg": [0.5] * 3}
    path, at = (
        papers / "fedentopt/table1/results.csv",
        "[fedentopt/table1](../papers/fedentopt/table1/README.md)",
    )

    def told() -> str:
        every = {"fedentopt": list(replications.checked("fedentopt"))}
        return line(
            replications.headlines(every), f"FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)<br>{at}, {scale}"
        )

    fill(papers / "fedentopt/table1", ours)
    both = path.read_text() + path.read_text().partition("\n")[2].replace("paper", "small")
    scale = "paper"
    path.write_text(both)
    assert "+10.33 points" in told()
    scale = "small"
    path.write_text(both.replace("paper,2", "paper,1"))  # two seeds at the paper's
    assert "+10.33 points" in told()


def test_a_reading_is_one_line_with_all_that_it_is_compared_with() -> None:
    every = list(replications.checked("fedlecc"))
    under = replications.by_reading(every)
    told = under["MNIST, K = 250, m = 10%, E = 1: FedLECC, J = 3"]
    assert {other: each.claim.against for other, each in told.items()} == {
        "FedAvg": "fedlecc/fedavg",
        "POC": "fedlecc/power_of_choice",
    }
    assert sum(map(len, under.values())) == sum(map(replications.is_reading, every))
    first, *rows = replications.reading_table(under).splitlines()
    assert first == "| reading | minus FedAvg | minus POC | seeds |"
    assert len(rows) == 1 + len(under)


@pytest.mark.parametrize(("ours", "x"), [(0.5, 0.5), (99.0, 2.5), (-99.0, -1.5)])
def test_a_claim_is_drawn_at_its_share_of_the_papers_difference(ours: float, x: float) -> None:
    """The paper's is 6.19 points; what is beyond the picture is at its edge."""
    judged = next(
        each.judged
        for each in replications.checked("fedentopt")
        if each.judged.claim.about == "FedEntOpt beats FedAvg, CIFAR-10, Dir(0.1)"
    )
    gap = ours * judged.paper
    drawn = claim_charts.claims([("paper", judged._replace(ours=Paired(3, gap, gap, gap, 1.0)))])
    at = claim_charts.Axis(claim_charts.LEAST, claim_charts.MOST).x(x)
    assert f'<circle cx="{at:.1f}"' in drawn
    assert "no difference" in drawn


def test_links_lead_somewhere_from_where_they_stand() -> None:
    """The words of a paper stand in two places."""
    files = [*replications.PAPERS.glob("**/README.md"), *REPOSITORY.glob("docs/replications*.md")]
    for path in files:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert link.startswith("http") or (path.parent / link).exists(), f"{path}: {link}"
