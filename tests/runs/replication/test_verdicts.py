"""Words of a verdict, by numbers computed by hand."""

import math

import pytest

from fedcohort.runs.replication.folders import Folder
from fedcohort.runs.replication.results import ResultRow
from fedcohort.runs.replication.verdicts import interval, judge, verdict
from fedcohort.util.errors import UserError

# Student's t with 2 degrees of freedom is 4.303. Of 4, 5, 6 the mean is 5, its error 1 / sqrt(3) = 0.5774 and
# so the interval 5 -+ 2.484.


@pytest.mark.parametrize(
    ("paper", "gaps", "word"),
    [
        (6.0, [4, 5, 6], "confirmed"),  # 2.5 to 7.5, and 5 is more than 3
        (10.0, [4, 5, 6], "confirmed"),  # 5 is just half
        (10.1, [4, 5, 6], "weaker"),
        (-6.0, [4, 5, 6], "reversed"),
        (-6.0, [-4, -5, -6], "confirmed"),
        (6.0, [1, 5, 9], "undecided"),  # 5 -+ 9.9
        (15.0, [1, 5, 9], "not reproduced"),
        (-6.0, [-1, -5, -9], "undecided"),
        (-6.0, [1, 0, -1], "not reproduced"),  # 0 -+ 2.5
        (6.0, [-4, -5, -6], "reversed"),
        (6.0, [4, 5], "open"),
        (6.0, [], "open"),
        (-1.0, [-1, -1, -1], "confirmed"),  # always the same
        (-1.0, [0, 0, 0], "not reproduced"),
    ],
)
def test_a_verdict_follows_from_the_interval(paper: float, gaps: list[float], word: str) -> None:
    assert verdict(paper, interval(gaps, [0.0] * len(gaps))) == word


def test_the_interval_is_that_of_the_mean() -> None:
    told = interval([4, 5, 6], [0, 0, 0])
    assert told is not None
    assert (told.low, told.high) == (pytest.approx(5 - 2.484, abs=1e-3), pytest.approx(5 + 2.484, abs=1e-3))


def result(method: str, seed: int, accuracy: float) -> ResultRow:
    about = {"conditions": "partition.alpha=50.0", "method": method, "seed": str(seed), "config": ""}
    return ResultRow(about, {"global.accuracy": accuracy})


def test_differences_are_paired_by_seed_and_in_the_table_s_unit(folder: Folder) -> None:
    """The paper has 72 % and 70 %; a seed that only one of them has does not count."""
    results = [result("fedavg", seed, 0.7 + 0.01 * seed) for seed in range(5)]
    results += [result("fedprox", seed, 0.68 + 0.01 * seed) for seed in range(4)]
    results.append(result("fedprox", 4, math.nan))
    (judged,) = judge(folder, results)
    assert judged.paper == 2.0
    assert judged.gaps == pytest.approx([2.0] * 4)
    assert (judged.verdict, judged.unit) == ("confirmed", "%")


@pytest.mark.parametrize(
    ("change", "paper", "gaps"),
    [
        (('against = "fedprox"', "against = 75.0"), -3.0, [-5.0, -4.0, -3.0]),
        (
            ('metric = "global.accuracy"', 'metric = "global.accuracy"\nrelative = true\npaper = 0.5'),
            0.5,
            [0.4, 0.42, 0.44],
        ),
    ],
)
def test_a_number_and_shares_are_differences_too(
    folder: Folder, change: tuple[str, str], paper: float, gaps: list[float]
) -> None:
    path = folder.path / "table.toml"
    path.write_text(path.read_text().replace(*change))
    results = [result("fedavg", seed, 0.7 + 0.01 * seed) for seed in range(3)]
    results += [result("fedprox", seed, 0.5) for seed in range(3)]
    (judged,) = judge(Folder(folder.path), results)
    assert judged.paper == paper
    assert judged.gaps == pytest.approx(gaps)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('against = "fedprox"', "against = 72.0"), "the paper's difference is 0"),
        (('against = "fedprox"', 'against = "fednova"'), "are not in expected.csv"),
    ],
)
def test_a_claim_that_is_none_is_named(folder: Folder, change: tuple[str, str], words: str) -> None:
    path = folder.path / "table.toml"
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=words):
        judge(Folder(folder.path), [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("72.0", ""),  # the method's
        ("70.0", ""),  # the other's
    ],
)
def test_a_number_that_the_paper_lacks_is_no_claim(folder: Folder, old: str, new: str) -> None:
    path = folder.path / "expected.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=r"expected\.csv has no number of the paper's for it"):
        judge(Folder(folder.path), [])


def test_a_share_is_one_of_the_papers_numbers_too(folder: Folder) -> None:
    """72 % is 2 / 70 above 70 %."""
    path = folder.path / "table.toml"
    path.write_text(path.read_text() + "relative = true\n")
    (judged,) = judge(Folder(folder.path), [])
    assert judged.paper == pytest.approx(2 / 70)


def test_shares_of_nothing_do_not_count(folder: Folder) -> None:
    path = folder.path / "table.toml"
    path.write_text(path.read_text() + "relative = true\n")
    results = [result("fedavg", seed, 0.7) for seed in range(5)]
    theirs = (0.5, 0.5, 0.5, 0.0, 1e-320)
    results += [result("fedprox", seed, accuracy) for seed, accuracy in enumerate(theirs)]
    (judged,) = judge(Folder(folder.path), results)
    assert judged.gaps == pytest.approx([0.4] * 3)


def test_roundings_are_no_difference(folder: Folder) -> None:
    results = [result("fedavg", seed, 0.8) for seed in range(3)]
    results += [result("fedprox", seed, 0.7999999999999999) for seed in range(3)]
    (judged,) = judge(folder, results)
    assert judged.verdict == "not reproduced"


def test_runs_on_other_data_are_no_pair(folder: Folder) -> None:
    results = [result("fedavg", seed, 0.8) for seed in range(4)]
    results += [result("fedprox", seed, 0.7) for seed in range(4)]
    results[-1].about["data"] = "another fingerprint"
    (judged,) = judge(folder, results)
    assert len(judged.gaps) == 3
