"""Clients that bring their own file or function: labels meet by name, and nothing but answers leaves."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.core.trust import Trust
from fedcohort.data.revealed import Revealed
from fedcohort.flower import messages
from fedcohort.flower.client_data import read_data
from fedcohort.flower.client_info import ClientInfo
from fedcohort.flower.ledger import Ledger
from fedcohort.flower.roster import Wanted, agreed
from fedcohort.runs.run import Result
from fedcohort.util.errors import UserError
from support.flower_tiny import experiment, through_flower
from support.inprocess import FIRST, InProcess

NAMES = ("north", "south", "west")
LABELS = (("ill", "well"), ("ill", "well"), ("well", "unknown"))
TABLE = {
    "data": {"source": "table", "path": "not-here.csv", "label": "outcome"},
    "partition": {"name": "iid", "clients": 3},
    "split": {"test": 0.2},
    "cohort": 3,
    "rounds": 2,
}


def hospital(path: Path, labels: tuple[str, ...], seed: int) -> Path:
    """Forty patients whose first two numbers say what they have."""
    random = np.random.default_rng(seed)
    lines = ["age,pressure,outcome"]
    for row in range(40):
        label = labels[row % len(labels)]
        age, pressure = random.normal(size=2) + {"ill": (3, 0), "well": (-3, 0), "unknown": (0, 5)}[label]
        lines.append(f"{age:.3f},{pressure:.3f},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def hospitals(out: Path, labels: tuple[tuple[str, ...], ...] = LABELS, privacy: str = "exact") -> InProcess:
    contexts = {}
    for number, (name, own) in enumerate(zip(NAMES, labels, strict=True)):
        data = hospital(out / f"{name}.csv", own, number)
        config = {"data": str(data), "label": "outcome", "name": name, "keep": str(out / "keep")}
        config["privacy"] = privacy
        contexts[FIRST + number] = Context(1, FIRST + number, config, RecordDict(), {})
    return InProcess(contexts)


def roster(out: Path) -> Revealed:
    return Revealed.read(next(out.glob("experiment-*/*/roster.safetensors")))


def final(result: Result) -> dict[str, float]:
    return {row.client: row.value for row in result.rows if row.client and row.metric == "accuracy"}


def test_each_hospital_reads_its_own_table(tmp_path: Path) -> None:
    """Two name two classes, one names a third: everybody counts again, and trains a model of three."""
    result, grid = through_flower(experiment("fedlecc", **TABLE), tmp_path, hospitals(tmp_path))
    assert sum(kind == messages.PROFILE for kind, *_ in grid.seen) == 6
    met = roster(tmp_path)
    assert met.clients == NAMES
    assert met.classes == ("ill", "unknown", "well")
    assert met.counts.tolist() == [[16, 0, 16], [16, 0, 16], [0, 16, 16]]
    assert final(result).keys() == set(NAMES)
    assert result.metrics["global.accuracy"] > 0.5


def test_one_question_is_enough_where_classes_are_listed(tmp_path: Path) -> None:
    data = {**TABLE["data"], "classes": ["ill", "unknown", "well"]}
    asked = experiment("fedlecc", **{**TABLE, "data": data, "privacy": {"counts": "noised"}})
    grid = hospitals(tmp_path, (("ill",), ("well",), ("well", "unknown")))  # some hold a single class
    through_flower(asked, tmp_path, grid)
    assert sum(kind == messages.PROFILE for kind, *_ in grid.seen) == 3
    counts = roster(tmp_path).counts
    assert counts.shape == (3, 3)
    assert not torch.equal(counts, counts.round())  # the noise


def test_noise_is_not_drawn_twice(tmp_path: Path) -> None:
    """Asked again with everybody's classes, a client tells what it told, and as much noise for the others."""
    asked = experiment("fedlecc", **{**TABLE, "privacy": {"counts": "noised"}})
    _, grid = through_flower(asked, tmp_path, hospitals(tmp_path))
    assert sum(kind == messages.PROFILE for kind, *_ in grid.seen) == 6
    met = roster(tmp_path)
    assert met.clients == NAMES
    for name, told in zip(NAMES, met.counts, strict=True):
        (entry,) = Ledger(tmp_path / "keep" / "told" / name, 0.5, 0.5).entries()
        noisy = torch.tensor([entry["told"][each] for each in met.classes]).clamp(min=0).double()
        torch.testing.assert_close(told, 32 * noisy / noisy.sum())


def test_who_withholds_what_a_method_needs_is_left_out(tmp_path: Path) -> None:
    grid = hospitals(tmp_path)
    grid.contexts[FIRST].node_config["privacy"] = "withheld"
    through_flower(experiment("fedlecc", **TABLE), tmp_path, grid)
    assert roster(tmp_path).clients == NAMES[1:]
    log = next(tmp_path.glob("experiment-*/*/flower.log")).read_text()
    assert "north (node 1001) does not take part: it tells no label counts, which fedlecc needs" in log
    with pytest.raises(UserError, match="no client can take part"):
        through_flower(
            experiment("fedlecc", **TABLE), tmp_path / "all", hospitals(tmp_path, privacy="withheld")
        )


def test_withheld_labels_stay_where_they_are(tmp_path: Path) -> None:
    data = {**TABLE["data"], "classes": ["ill", "unknown", "well"]}
    asked = experiment("fedavg", **{**TABLE, "data": data, "privacy": {"counts": "withheld"}})
    result, grid = through_flower(asked, tmp_path, hospitals(tmp_path))
    for _, _, _, reply in grid.seen:
        assert not {"counts", "by_class"} & messages.read(reply.content).tensors.keys()
    assert "global.accuracy" in result.metrics
    assert "global.accuracy[ill]" not in result.metrics


def test_tables_with_other_columns_are_refused(tmp_path: Path) -> None:
    """What most clients have counts; where as many have the one as the other, nobody can tell."""
    grid = hospitals(tmp_path)
    head, *rows = (tmp_path / "north.csv").read_text().splitlines()
    (tmp_path / "north.csv").write_text("\n".join([f"height,{head}", *(f"1.5,{row}" for row in rows)]))
    result, _ = through_flower(experiment("fedavg", **TABLE), tmp_path, grid)
    assert final(result).keys() == set(NAMES[1:])
    log = next(tmp_path.glob("experiment-*/*/flower.log")).read_text()
    assert (
        "north (node 1001) does not take part: its examples have shape (3,), those of most clients (2,)"
        in log
    )
    del grid.contexts[FIRST + 2]
    with pytest.raises(UserError, match=r"have shape \(2,\), those of north \(3,\)"):
        through_flower(experiment("fedavg", **TABLE), tmp_path / "two", grid, timeout=0.1)


def test_a_function_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are any words or numbers; a client is asked for by its name."""
    (tmp_path / "ward.py").write_text(
        "import numpy as np\n"
        "def load(client):\n"
        "    sign = {'north': 1, 'south': -1, 'west': 1}[client]\n"
        "    y = np.arange(20) % 2\n"
        "    return (2 * y[:, None] - 1) * np.array([[sign, 1.0]]), y\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ward", raising=False)
    grid = hospitals(tmp_path)
    for context in grid.contexts.values():
        del context.node_config["data"]
        context.node_config["load"] = "ward:load"
    result, _ = through_flower(experiment("fedavg", **TABLE), tmp_path, grid)
    assert roster(tmp_path).sizes[0].tolist() == [16, 16, 16]
    assert final(result).keys() == set(NAMES)


def test_a_loader_of_the_run_is_for_those_who_have_no_data_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given a number where there is no name."""
    (tmp_path / "clinic.py").write_text(
        "import numpy as np\n"
        "def load(client):\n"
        "    assert client == 7\n"
        "    y = np.where(np.arange(20) % 2, 'ill', 'well')\n"
        "    return np.ones((20, 2)), y\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "clinic", raising=False)
    grid = hospitals(tmp_path)
    for context in grid.contexts.values():
        context.run_config = {"load": "clinic:load"}
    grid.contexts[FIRST].node_config = {"partition-id": 7, "keep": str(tmp_path / "keep"), "allow": "clinic"}
    through_flower(experiment("fedavg", **TABLE), tmp_path, grid)
    met = roster(tmp_path)
    assert dict(zip(met.clients, met.sizes[0].tolist(), strict=True)) == {
        "client 7": 16,
        "south": 32,
        "west": 32,
    }


def test_a_client_without_data_does_not_take_part(tmp_path: Path) -> None:
    grid = hospitals(tmp_path)
    for key in ("data", "label"):
        del grid.contexts[FIRST].node_config[key]
    through_flower(experiment("fedavg", **TABLE), tmp_path, grid)
    assert roster(tmp_path).clients == NAMES[1:]


def test_who_names_a_class_that_is_not_listed_is_left_out() -> None:
    """Where the experiment lists its classes; where it does not, all that clients name are classes."""
    said = (("north", ("a", "b")), ("south", ("a", "c")))
    infos = [ClientInfo(1, name, [5, 0, 0], classes, (3,), 0, None, {}) for name, classes in said]
    listed = Wanted(Method.parse("fedavg"), Privacy(), Trust(), ("a", "b"))
    kept, classes = agreed(infos, listed)
    assert [info.name for info in kept] == ["north"]
    assert classes == ("a", "b")
    kept, classes = agreed(infos, listed._replace(classes=()))
    assert [info.name for info in kept] == ["north", "south"]
    assert classes == ("a", "b", "c")


@pytest.mark.parametrize(
    ("options", "words"),
    [({"bins": 3}, "list the numbers between the classes"), ({"missing": "median"}, "take 'mean', or each")],
)
def test_what_needs_the_rows_of_all_is_refused(options: dict, words: str, tmp_path: Path) -> None:
    own = {"data": str(hospital(tmp_path / "a.csv", LABELS[0], 0)), "label": "outcome"}
    asked = experiment("fedavg", **{**TABLE, "data": {**TABLE["data"], **options}})
    with pytest.raises(UserError, match=words):
        read_data(own, asked, 0)


def test_a_client_says_itself_which_rows_it_leaves_out(tmp_path: Path) -> None:
    """From the number of rows that are left, who may say that could tell where cells are empty."""
    path = hospital(tmp_path / "a.csv", LABELS[0], 0)
    path.write_text(path.read_text() + ",1.0,ill\n")
    own = {"data": str(path), "label": "outcome"}
    asked = experiment("fedavg", **{**TABLE, "data": {**TABLE["data"], "drop_incomplete": True}})
    with pytest.raises(UserError, match="column 'age' is empty in 1 of 41 rows"):
        read_data(own, asked, 0)
    assert int(read_data({**own, "drop-incomplete": 1}, asked, 0).federation.sizes.sum()) == 40


def test_whose_rows_they_are_is_no_feature(tmp_path: Path) -> None:
    """A table cut out of the one that all would make has the column that tells clients apart there."""
    path = hospital(tmp_path / "a.csv", LABELS[0], 0)
    own = {"data": str(path), "label": "outcome"}
    asked = experiment("fedavg", **{**TABLE, "data": {**TABLE["data"], "client": "site"}})
    without = read_data(own, asked, 0).federation.train.x
    lines = path.read_text().splitlines()
    path.write_text("\n".join([f"site,{lines[0]}", *(f"north,{line}" for line in lines[1:])]))
    assert read_data(own, asked, 0).federation.train.x.equal(without)
