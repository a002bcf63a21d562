"""What a client tells under noise: drawn once, from a source nobody steers, and paid for."""

import json
import math
import stat

import pytest
from scipy.stats import chisquare

from fedcohort.flower.ledger import Ledger, OverspentError
from fedcohort.util.errors import UserError

NAMES = ("ill", "well", "unknown")
COUNTS = (30, 10, 0)


def test_the_same_question_gets_the_same_answer(tmp_path):
    """In other runs, at another epsilon, about more classes: to ask again teaches nothing."""
    ledger = Ledger(tmp_path, 0.5, 0.5)
    first = ledger.tell("label counts", NAMES, COUNTS)
    assert all(ledger.tell("label counts", NAMES, COUNTS) == first for _ in range(20))
    assert Ledger(tmp_path, 8.0, 0.5).tell("label counts", NAMES, COUNTS) == first
    wider = ledger.tell("label counts", ("dead", *NAMES), (0, *COUNTS))
    assert wider[1:] == first
    assert ledger.tell("label counts", ("dead", *NAMES), (0, *COUNTS)) == wider
    assert ledger.spent == 0.5
    assert stat.S_IMODE((tmp_path / "ledger.json").stat().st_mode) == 0o600


def test_another_question_is_paid_for_until_the_budget_is_spent(tmp_path):
    ledger = Ledger(tmp_path, 0.5, 1.0)
    ledger.tell("label counts", NAMES, COUNTS)
    ledger.tell("summary of haccs", ("0", "1"), (20.5, 19.5))
    assert ledger.spent == 1.0
    with pytest.raises(OverspentError, match=r"other counts: epsilon 0.5 more, after 1, would exceed"):
        ledger.tell("other counts", NAMES, COUNTS)
    assert ledger.spent == 1.0
    assert len(ledger.tell("label counts", NAMES, COUNTS)) == 3  # what was told stays told


def test_whether_the_data_changed_is_not_told(tmp_path):
    """A refusal, or another answer, would say whether a sample moved from one cell to another."""
    ledger = Ledger(tmp_path, 0.5, 0.5)
    told = ledger.tell("label counts", NAMES, COUNTS)
    assert ledger.tell("label counts", NAMES, (0, 0, 40)) == told


def test_nothing_is_told_that_is_not_written_down(tmp_path, monkeypatch):
    """A client that crashed between the two would draw again."""
    ledger = Ledger(tmp_path, 0.5, 0.5)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedcohort.flower.ledger.write_atomically", full)
    with pytest.raises(OSError):
        ledger.tell("label counts", NAMES, COUNTS)


@pytest.mark.parametrize(
    "text",
    [
        "[{",
        "",
        "{}",
        '""',
        "null",
        "[1]",
        "[{}]",
        '[{"what": "a", "epsilon": "x", "told": {}}]',
        '[{"what": "a", "epsilon": -9, "told": {}}]',
        '[{"what": "a", "epsilon": 1, "told": []}]',
    ],
)
def test_a_damaged_ledger_is_not_begun_anew(text, tmp_path):
    """Or whoever can damage it could ask as often as they like."""
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(UserError, match="is damaged"):
        Ledger(tmp_path, 0.5, 0.5).tell("label counts", NAMES, COUNTS)


def test_the_noise_is_of_the_scale_that_epsilon_asks(tmp_path):
    """Discrete Laplace with exp(-epsilon / 2), drawn by OpenDP: 3,000 cells of one table."""
    cells = [str(number) for number in range(3000)]
    noise = [told - 7 for told in Ledger(tmp_path, 1.0, 1.0).tell("counts", cells, [7] * 3000)]
    a = math.exp(-0.5)
    share = [(1 - a) / (1 + a) * a ** abs(x) for x in range(-6, 7)]
    seen = [noise.count(x) for x in range(-6, 7)]
    expected = [*(3000 * each for each in share), 3000 * (1 - sum(share))]
    assert chisquare([*seen, 3000 - sum(seen)], expected).pvalue > 1e-4
    assert all(isinstance(each, int) for each in noise)
    other = Ledger(tmp_path / "other", 1.0, 1.0).tell("counts", cells, [7] * 3000)
    assert [told - 7 for told in other] != noise


def test_the_ledger_says_what_was_told_when(tmp_path):
    Ledger(tmp_path, 0.5, 0.5).tell("label counts", NAMES, COUNTS)
    (entry,) = json.loads((tmp_path / "ledger.json").read_text())
    assert entry["what"] == "label counts"
    assert entry["epsilon"] == 0.5
    assert entry["told"].keys() == set(NAMES)
    assert entry["when"][:2] == "20"


def test_a_server_that_invents_cells_does_not_fill_the_disk(tmp_path, monkeypatch):
    """New cells of a known table cost no epsilon, and each run could name others."""
    monkeypatch.setattr("fedcohort.flower.ledger.CELLS", 10)
    ledger = Ledger(tmp_path, 0.5, 0.5)
    told = ledger.tell("label counts", NAMES, COUNTS)
    ledger.tell("label counts", [f"a {n}" for n in range(7)], [0] * 7)
    size = (tmp_path / "ledger.json").stat().st_size
    with pytest.raises(OverspentError, match="1 cells more, and the ledger would hold more than 10"):
        ledger.tell("label counts", ["one more"], [0])
    assert (tmp_path / "ledger.json").stat().st_size == size
    assert ledger.tell("label counts", NAMES, COUNTS) == told
