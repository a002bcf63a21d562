"""In which order runs go, what they cost, and which there is no time for."""

from pathlib import Path

import pytest

from fedcohort.runs.comparison import PlannedRun
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.replication.folders import Cell
from fedcohort.runs.replication.order import InOrder, completed, read_costs, representatives, write_costs
from fedcohort.util.errors import UserError

CELLS = [
    Cell(f"p/{c}", f"p/{m}") for c in ("mnist", "fmnist/alpha=0.05") for m in ("fedavg", "fedavgm", "fedlecc")
]


def test_no_run_is_begun_that_would_end_too_late() -> None:
    """10 rounds each; by a probe 1 s a round of the one, 5 s of the other: of 25 s one takes 10. The next
    like it would end after 20, the dear one after 60. Two at a time are half as fast."""
    experiment, now = Experiment.of({"method": ["fedavg", "fedprox"], "rounds": 10}), [0.0]
    cheap, dear = experiment.methods
    jobs = [
        PlannedRun(experiment, method, seed, Path(f"{method}{seed}"))
        for seed in (0, 1)
        for method in (cheap, dear)
    ]
    schedule = InOrder(jobs, {"fedavg": 1.0, "fedprox": 5.0}, 25.0, lambda: now[0])
    assert schedule.next().key == ("fedavg", 0)
    now[0] = 10.0
    assert [job.key for job in schedule.waiting] == [("fedavg", 1)]
    assert [job.key for job in schedule.given_up] == [("fedprox", 0), ("fedprox", 1)]
    schedule.size = 2
    assert schedule.waiting == []
    assert len(schedule.given_up) == 3


def test_a_run_that_was_seen_to_wait_can_be_begun_a_moment_later() -> None:
    """Its time may be up between the two."""
    experiment, now = Experiment.of({"method": ["fedavg"], "rounds": 10}), [0.0]
    jobs = [PlannedRun(experiment, experiment.methods[0], seed, Path(str(seed))) for seed in (0, 1)]
    schedule = InOrder(jobs, {"fedavg": 1.0}, 25.0, lambda: now[0])
    assert len(schedule.waiting) == 2
    now[0] = 16.0
    assert schedule.next().key == ("fedavg", 0)
    assert schedule.waiting == []


def test_a_run_that_is_seen_is_believed_rather_than_its_probe() -> None:
    experiment, now = Experiment.of({"method": ["fedavg"], "rounds": 10}), [0.0]
    jobs = [PlannedRun(experiment, experiment.methods[0], seed, Path(str(seed))) for seed in (0, 1)]
    schedule = InOrder(jobs, {"fedavg": 100.0}, 50.0, lambda: now[0])
    schedule.costs = {"fedavg": 1.0}
    schedule.next()
    schedule.costs = {"fedavg": 100.0}
    for done in (1, 2, 3):
        now[0] += 2.0
        schedule.saw(("fedavg", 0), done)
    assert len(schedule.waiting) == 1  # 20 s, not 1000


def test_costs_of_others_follow_from_those_that_were_measured() -> None:
    """Under the second conditions FedAvg takes three times as long, so FedAvgM is thought to, too: the mean
    there (3) times its own (2) by the mean of all, 2."""
    assert representatives(CELLS) == [CELLS[0], CELLS[1], CELLS[2], CELLS[3]]
    known = {CELLS[0]: 1.0, CELLS[1]: 2.0, CELLS[3]: 3.0}
    assert completed(known, CELLS)[CELLS[4]] == pytest.approx(3.0 * 2.0 / 2.0)
    assert completed({}, CELLS) == {}


def test_costs_of_a_label_with_an_at_sign_are_read_again(tmp_path: Path) -> None:
    cell = Cell("mnist", "a@b")
    write_costs(tmp_path / "costs.json", {cell: 2.0})
    assert read_costs(tmp_path / "costs.json") == {cell: 2.0}


@pytest.mark.parametrize("text", ["5", "null", "[{}]", "[]"])
def test_costs_that_are_none_are_damaged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(UserError, match="damaged"):
        read_costs(path)
