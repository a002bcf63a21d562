"""``method = "auto"``: chosen once by what clients reveal, and written down as what it became."""

import tomllib
from pathlib import Path

import pytest

from fedcohort.runs.comparison import Watcher, carry_out, prepare, reopen
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.run import Callback
from fedcohort.runs.stored import ASKED
from fedcohort.util.errors import UserError
from support.cli_calls import TINY
from support.evidence import table

GAINS = {"scaffold": 0.1, "ifca": 0.2}
EVIDENCE = table(*((skew, GAINS) for skew in (0.2, 0.6, 1.0)))
OTHERS = table(*((skew, {"fedprox": 0.3}) for skew in (0.2, 0.6, 1.0)))


@pytest.fixture(autouse=True)
def evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: EVIDENCE)


def of(method: str, **settings: object) -> Experiment:
    return Experiment.of({**tomllib.loads(f"{method}\n{TINY}"), **settings})


class Silent(Watcher):
    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        return Callback()

    def expect(self, seconds: float) -> None: ...

    def end(self, outcome: Outcome) -> None: ...


@pytest.mark.parametrize(
    ("text", "methods"),
    [
        ("method = 'auto'", ["ifca"]),
        ("method = 'auto(one_model=True)'", ["scaffold"]),
        ("method = ['fedavg', 'auto']", ["fedavg", "ifca"]),
        ("method = ['ifca', 'auto']", ["ifca"]),  # it is listed already
        ("method = ['auto', 'auto(one_model=true)']", ["ifca", "scaffold"]),
        ("method = [{name = 'auto', one_model = true, label = 'ours'}]", ["ours"]),
    ],
)
def test_auto_becomes_a_method(text: str, methods: list[str]) -> None:
    found = of(text)
    assert [method.title for method in found.methods] == methods
    assert any(note.startswith("auto is ") for note in found.notes)


def test_auto_becomes_those_to_tune_where_the_table_is_no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = {"scaffold": 0.1, "ifca": 0.2, "fedprox": 0.3}
    unsure = table(*((skew, gains) for skew in (0.2, 0.6, 1.0)), any=False)
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: unsure)
    found = of("method = ['ifca', {name = 'auto', label = 'ours', local = {lr = 0.7}}]")
    assert [method.title for method in found.methods] == ["ifca", "fedprox", "scaffold"]
    assert found.own_local == {"fedprox": {"lr": 0.7}, "scaffold": {"lr": 0.7}}
    assert found.undecided == ("fedprox", "scaffold")
    assert found.notes[0].startswith("auto is one of fedprox, ifca, scaffold: label counts do not tell")


def test_its_clients_train_as_its_entry_says() -> None:
    found = of("method = ['fedavg', {name = 'auto', local = {lr = 0.7}}]")
    assert found.own_local == {"ifca": {"lr": 0.7}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("method = 'auto+fedprox'", "auto chooses all of them: write it alone"),
        ("method = 'fedprox + auto'", "auto chooses all of them: write it alone"),
        ("method = 'auto(one=1)'", "method.auto.one: unknown"),
        ("method = [{name = 'auto', one_model = 3}]", "method.auto.one_model"),
    ],
)
def test_mistakes(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        of(text)


def test_withheld_counts_are_not_looked_at() -> None:
    with pytest.raises(UserError, match="advice needs label counts, but privacy"):
        of("method = 'auto'", privacy={"counts": "withheld"})


def test_noised_counts_need_evidence_of_their_own() -> None:
    with pytest.raises(UserError, match="nothing was measured with noised label counts"):
        of("method = 'auto'", privacy={"counts": "noised"})


def test_clients_elsewhere_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(f"method = 'auto'\n{TINY}")
    assert str(Experiment.read(path).methods[0]) == "ifca"
    with pytest.raises(UserError, match="ask 'fedcohort advise' about a table of their counts"):
        Experiment.read(path, clients_here=False)
    with pytest.raises(UserError, match="these are elsewhere"):
        Experiment.of(tomllib.loads(path.read_text()), elsewhere=True)


def test_a_run_goes_on_with_the_method_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a later table of evidence says."""
    plan = prepare(of("method = 'auto'"), tmp_path)
    assert tomllib.loads((plan.home / ASKED).read_text())["method"] == [{"name": "ifca"}]
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: OTHERS)
    assert str(of("method = 'auto'").methods[0]) == "fedprox"
    (outcome,) = carry_out(reopen(plan.home), Silent())
    assert outcome.method == "ifca"
