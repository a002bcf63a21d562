"""Experiment files: every way to write a method, defaults, overrides, and what is kept of them."""

import dataclasses
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.method import METHODS, Method
from fedcohort.data.sources import SOURCES, places_in
from fedcohort.methods.fedprox import FedProx
from fedcohort.runs.experiment import Experiment, config_hash, difference
from fedcohort.runs.overrides import override
from fedcohort.util.errors import UserError


def of(text: str) -> Experiment:
    return Experiment.of(tomllib.loads(text))


# Methods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "method = 'fedlecc+fedprox(mu=0.5)'",
        "method = ['fedlecc+fedprox(mu=0.5)']",
        "[[method]]\nname = 'fedlecc+fedprox(mu=0.5)'",
        "[[method]]\nparts = ['fedlecc', {name = 'fedprox', mu = 0.5}]",
        "[[method]]\nparts = ['fedprox(mu=0.5)', 'fedlecc']",
        "[[method]]\n[[method.parts]]\nname = 'fedlecc'\n[[method.parts]]\nname = 'fedprox'\nmu = 0.5",
    ],
)
def test_one_method_in_all_its_spellings(text: str) -> None:
    (method,) = of(text).methods
    assert str(method) == "fedlecc+fedprox(mu=0.5)"
    assert method.objective == FedProx(mu=0.5)
    assert method.selector.name == "fedlecc"


def test_a_table_holds_the_settings_of_its_method() -> None:
    methods = of("[[method]]\nname = 'fedprox'\nmu = 2\n[[method]]\nname = 'fedavg'").methods
    assert [str(method) for method in methods] == ["fedprox(mu=2.0)", "fedavg"]  # a whole number is a number


def test_a_table_outweighs_its_name() -> None:
    (method,) = of("[[method]]\nname = 'fedprox(mu=1)'\nmu = 2").methods
    assert method.objective == FedProx(mu=2.0)


@pytest.mark.parametrize("name", METHODS.names())
def test_text_of_a_method_reads_back(name: str) -> None:
    method = Method.parse(name)
    assert Method.parse(str(method)) == method


# Defaults --------------------------------------------------------------------------------------------------


def test_the_shortest_experiment() -> None:
    short = of("method = 'fedavg'")
    assert short.name == "experiment"
    assert (short.rounds, short.cohort, short.seeds) == (50, 0.1, (0,))
    assert short.data == {"source": "digits"}
    assert short.partition.name == "dirichlet"
    assert short.model == {"name": "mlp"}
    assert short.notes == ()


def test_data_with_a_client_column_keep_their_clients(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("site,label\n")
    data = {"source": "table", "path": str(tmp_path / "patients.csv"), "label": "label", "client": "site"}
    assert Experiment.of({"method": "fedavg", "data": data}).partition.name == "natural"


def test_validation_data_are_held_out_for_who_needs_them_and_announced() -> None:
    asked = of("method = ['fedavg', 'cafa']")
    assert asked.split.validation == 0.2
    assert asked.notes == (
        "cafa needs validation data: 20% of each client's training data is held out, for every method",
    )
    own = of("method = ['cafa']\n[split]\nvalidation = 0.1")
    assert (own.split.validation, own.notes) == (0.1, ())
    assert of("method = ['fedavg']").split.validation == 0


@pytest.mark.parametrize(("cohort", "clients"), [(1, 1), (1.0, 8), (0.5, 4), (5, 5)])
def test_a_cohort_is_a_number_of_clients_or_a_share(cohort: int | float, clients: int) -> None:
    source = "[data]\nsource = 'synthetic'\nsamples = 80\n[partition]\nname = 'iid'\nclients = 8"
    asked = of(f"cohort = {cohort}\nmethod = 'fedavg'\n{source}")
    assert asked.cohort == cohort
    assert type(asked.cohort) is type(cohort)
    assert asked.task(0).cohort_size == clients


def test_paths_are_kept_absolute_unless_they_are_below_the_data_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    rows = "age,label\n" + "".join(f"{i},{i % 2}\n" for i in range(20))
    (tmp_path / "here.csv").write_text(rows)
    (tmp_path / "root" / "there.csv").write_text(rows)
    for path, kept in (("here.csv", str(tmp_path / "here.csv")), ("there.csv", "there.csv")):
        data = {"source": "table", "path": path, "label": "label", "root": "root"}
        asked = Experiment.of({"method": "fedavg", "data": data})
        assert asked.data["path"] == kept
        assert asked.data["root"] == str(tmp_path / "root")
        monkeypatch.chdir("/")
        assert len(asked.dataset) == 20
        monkeypatch.chdir(tmp_path)


OWN_SOURCE = """
from dataclasses import dataclass
from fedcohort.api import DataPath, Dataset, Places, register

@register
@dataclass(frozen=True)
class Archive:
    volumes: DataPath | None = None
    title: str = ""

    def load(self, where: Places) -> Dataset: ...
"""


def test_the_type_of_an_option_says_that_it_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive.py").write_text(OWN_SOURCE)
    (tmp_path / "shelf").mkdir()
    data = {"source": "archive", "volumes": "shelf", "title": "shelf"}
    table = {"method": "fedavg", "imports": ["archive"], "data": data}
    assert Experiment.of(table).data == {**data, "volumes": str(tmp_path / "shelf")}
    assert Experiment.of(table, elsewhere=True).data == {**data, "volumes": "at the client"}


@pytest.mark.parametrize("name", SOURCES.names())
def test_paths_of_our_own_sources_are_declared(name: str) -> None:
    options = {field.name: "" for field in dataclasses.fields(SOURCES.get(name))}
    named = {option for option in options if "path" in option}
    assert places_in({"source": name, "root": "", **options}).keys() == {"root", *named}


def test_federations_are_shared_by_methods_and_differ_between_seeds() -> None:
    text = "method = ['fedavg', 'fedlecc']\n[data]\nsource = 'synthetic'\nsamples = 200"
    asked = of(text)
    assert asked.federation(0) is of(text).federation(0)
    assert asked.federation(0).fingerprint() != asked.federation(1).fingerprint()


# Overrides -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("rounds=9", "rounds", 9),
        ("local.lr = 0.5", "lr", 0.5),
        ("new.deep.key=1", "key", 1),
        ("seeds=[1, 2]", "seeds", [1, 2]),
        ("model=mlp", "model", "mlp"),  # a bare word is a text
        ("name='a=b'", "name", "a=b"),
        ("flag=true", "flag", True),
    ],
)
def test_override(change: str, key: str, value: Any) -> None:
    table: dict[str, Any] = {"rounds": 3, "local": {"lr": 0.1, "batch": 8}}
    override(table, change)
    here = table
    for parent in change.partition("=")[0].strip().split(".")[:-1]:
        here = here[parent]
    assert here[key] == value
    assert table["local"]["batch"] == 8


def test_override_of_a_list_by_position_and_name() -> None:
    table: dict[str, Any] = {"method": [{"name": "fedavg"}, {"name": "fedprox", "mu": 1}]}
    override(table, "method.1.mu=2")
    assert table["method"][1]["mu"] == 2
    override(table, "method.fedprox.mu=3")
    assert table["method"][1]["mu"] == 3
    override(table, "method.0='fedlecc'")
    assert table["method"][0] == "fedlecc"


ANOTHER = """
method = "fedavg"
[data]
source = "synthetic"
scale = "none"
samples = 90
[partition]
name = "dirichlet"
clients = 6
alpha = 0.5
[model]
name = "mlp"
widths = [4]
[evaluate]
on = "test"
"""


@pytest.mark.parametrize(
    ("changes", "section", "after", "told"),
    [
        (["partition.name=natural"], "partition", {"min_samples": 1, "max_clients": None}, "clients, alpha"),
        (["partition.name=iid"], "partition", {"clients": 6}, "alpha"),  # an iid partition has clients too
        (["partition.name='iid'", "partition.clients=9"], "partition", {"clients": 9}, "alpha"),
        (["model.name=logistic"], "model", {"name": "logistic"}, "widths"),
        (["data.source=digits"], "data", {"source": "digits", "scale": "none"}, "samples"),
        (["model.widths=[5]"], "model", {"name": "mlp", "widths": [5]}, None),
    ],
)
def test_another_name_drops_settings_of_the_one_before(
    changes: list[str], section: str, after: dict[str, Any], told: str | None, tmp_path: Path
) -> None:
    (tmp_path / "e.toml").write_text(ANOTHER)
    experiment = Experiment.read(tmp_path / "e.toml", changes)
    settings = getattr(experiment, section)
    assert (settings if isinstance(settings, dict) else vars(settings)) == after
    named = changes[0].replace("=", " = ").replace("'", "")
    wanted = () if told is None else (f"{named}: {told} of the file dropped, which it does not have",)
    assert experiment.notes == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("partition.name=natura", "unknown partition 'natura', did you mean 'natural'"),
        ("partition={name='iid', alpha=1.0}", "partition.alpha: unknown"),  # whoever writes it anew means it
    ],
)
def test_only_what_the_file_says_is_dropped(change: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(ANOTHER)
    with pytest.raises(UserError, match=words):
        Experiment.read(tmp_path / "e.toml", [change])


# What is kept ----------------------------------------------------------------------------------------------

FULL = """
name = "all settings"
rounds = 7
cohort = 1.0
seeds = [3, 1]
method = ["fedlecc(clusters_per_round=2)+fedprox(mu=1e-5)", "fedgwc(view='row')", "cafa"]
[data]
source = "synthetic"
samples = 90
[partition]
name = "iid"
clients = 5
[model]
name = "mlp"
widths = [4, 3]
[local]
steps = 3
[privacy]
counts = "noised"
[faults]
stragglers = 0.5
[evaluate]
target = 0.5
"""


def test_what_is_kept_of_a_run_gives_that_run_again() -> None:
    asked = of(FULL)
    for method in asked.methods:
        for seed in asked.seeds:
            table = asked.table(method, seed)
            again = Experiment.of(tomllib.loads(tomli_w.dumps(table)))
            assert (again.methods, again.seeds) == ((method,), (seed,))
            assert again.table(method, seed) == table
            assert again.notes == ()  # the choice is now written down
            assert config_hash(again.table(method, seed)) == config_hash(table)


def test_what_is_kept_of_a_comparison_gives_every_run_again() -> None:
    asked = of(FULL)
    again = Experiment.of(tomllib.loads(tomli_w.dumps(asked.table())))
    assert again == asked
    assert again.table() == asked.table()


def test_hashes_name_settings_not_their_order() -> None:
    table = of(FULL).table()
    assert config_hash(dict(reversed(table.items()))) == config_hash(table)
    assert config_hash({**table, "rounds": 8}) != config_hash(table)
    assert len(config_hash(table)) == 8


def test_difference_names_the_first_setting() -> None:
    a = {"rounds": 1, "local": {"lr": 0.1, "batch": 8}}
    assert difference(a, {"local": {"batch": 8, "lr": 0.1}, "rounds": 1}) is None
    assert difference(a, {**a, "rounds": 2}) == "rounds is 1 here and 2 there"
    assert difference(a, {**a, "local": {"lr": 0.2, "batch": 8}}) == "local.lr is 0.1 here and 0.2 there"
    assert difference(a, {"rounds": 1, "local": {"lr": 0.1}}) == "local.batch is 8 here and None there"
    assert difference(a, {**a, "name": "x"}) == "name is None here and 'x' there"
    assert difference(a, {**a, "local": 3}) == "local is {'lr': 0.1, 'batch': 8} here and 3 there"


SCALARS = st.integers(-5, 5) | st.text("ab", max_size=2) | st.booleans()
TABLES = st.dictionaries(
    st.text("xyz", min_size=1, max_size=2), SCALARS | st.dictionaries(st.text("uv", min_size=1), SCALARS)
)


@settings(max_examples=60, deadline=None)
@given(TABLES, TABLES)
def test_difference_is_none_only_for_equal_tables(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert (difference(a, b) is None) == (a == b)
    assert difference(a, a) is None


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=12))
def test_whatever_is_set_is_understood_or_refused(change: str) -> None:
    with suppress(UserError):  # and nothing else
        override({"method": [{"name": "fedavg"}]}, change)


def test_a_name_is_one_line():
    """What its directory and its report are called."""
    with pytest.raises(UserError, match="name: write one line"):
        Experiment.of({"method": "fedavg", "name": "a\nb"})


@pytest.mark.parametrize("rounds", [0, 10**9 + 1])
def test_a_number_of_rounds_that_no_directory_could_hold(rounds: int) -> None:
    with pytest.raises(UserError, match="rounds: "):
        Experiment.of({"rounds": rounds})
