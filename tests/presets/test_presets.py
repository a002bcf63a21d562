"""Presets: the papers' values, how they enter an experiment, and that every one of them runs.

Expected values are typed in from the papers, not read from the preset files: Table II of Clust-PSI-PFL,
Section V-A of FedEntOpt, Appendix F and Tables 5 and 8 of FedGWC, Sections V-A and IV of FedLECC and CAFA.
"""

import gzip
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
import torch

from fedcohort import preset
from fedcohort.cli.app import main
from fedcohort.cli.progress import Silent
from fedcohort.core.method import METHODS, Method
from fedcohort.methods.fedprox import FedProx
from fedcohort.models import flat_model
from fedcohort.presets import Preset, conditions, fill, listing, papers, presets, read_method
from fedcohort.presets.experiments import find, shown, spellings, words
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment, config_hash
from fedcohort.runs.run import run
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support import REPOSITORY

TINY = (REPOSITORY / "tests" / "tiny.toml").read_text()


def of(text: str) -> Experiment:
    return Experiment.of(tomllib.loads(text))


# The papers' values ----------------------------------------------------------------------------------------

STATED = {
    "clust-psi-pfl/fedprox": {"mu": 0.01},
    "clust-psi-pfl/fedavgm": {"beta": 0.7},
    "clust-psi-pfl/fedadagrad": {"tau": 0.1, "server_lr": 0.3162},
    "clust-psi-pfl/fedyogi": {"tau": 0.01, "server_lr": 0.001, "beta1": 0.9, "beta2": 0.99},
    "clust-psi-pfl/fedadam": {"tau": 0.001, "server_lr": 0.001, "beta1": 0.9, "beta2": 0.99},
    "clust-psi-pfl/power_of_choice": {"d": 8},
    "clust-psi-pfl/haccs": {"rho": 0.95},
    "clust-psi-pfl/fedcls": {"tau": 0.1},
    "clust-psi-pfl/cfl": {"eps1": 1e-5, "eps2": 0.1, "gamma": 0.5},
    "clust-psi-pfl/fedsoft": {"groups": 5},
    "fedentopt/fedentopt": {"buffer": 0.5, "epsilon": None},
    "fedentopt/fedentopt/quantity": {"buffer": 0.7, "epsilon": None},
    "fedentopt/fedentopt/dp": {"buffer": 0.5, "epsilon": 0.5},
    "fedentopt/fedprox": {"mu": 1e-4},
    "fedentopt/fedrs": {"alpha": 0.5},
    "fedentopt/fedlc": {"tau": 1.0},
    "fedentopt/fedconcat": {"groups": 5, "rounds": 480},
    "fedentopt/scaffold": {"weighted": True},
    "fedentopt/fedentopt+fedprox/quantity": {"buffer": 0.7, "mu": 1e-4},
    "fedgwc/fedgwc": {"alpha": 0.1, "beta": 0.5, "tolerance": 1e-5},
    "fedgwc/fedgwc/femnist": {"beta": 4.0, "tolerance": 1e-5},
    "fedgwc/fedgwc/landmarks": {"beta": 0.5, "tolerance": 1e-4},
    "fedgwc/fedgwc/inaturalist": {"beta": 0.5, "tolerance": 1e-2},
    "fedgwc/ifca": {"groups": 5},
    "fedgwc/ifca/landmarks": {"groups": 3},
    "fedgwc/fesem": {"groups": 5},
    "fedgwc/fesem/femnist": {"groups": 2},
}

COMPARED = {  # every row or column of the papers' tables, under the library's names
    "clust-psi-pfl": "centralised fedavg fedprox fedavgm fedadagrad fedyogi fedadam power_of_choice haccs "
    "fedcls cfl fedsoft clust_psi_pfl",
    "fedlecc": "fedavg fedprox fednova feddyn haccs fedcls fedcor power_of_choice fedlecc",
    "fedentopt": "fedavg fedprox fednova scaffold fedconcat fedlc fedrs kl fedentopt fedentopt/dp "
    "fedentopt+fedprox fedentopt+fednova fedentopt+scaffold fedentopt+fedrs fedentopt+fedlc",
    "fedgwc": "ifca fesem cfl fedgwc fedavg fedavgm fedprox fairavg fedgwc+fedavgm fedgwc+fedprox",
    "cafa": "fedavg fedprox cafa",
}


@pytest.mark.parametrize("name", STATED)
def test_values_are_the_papers(name: str) -> None:
    parts = preset(name).parts
    settings = {key: value for part in parts for key, value in vars(part).items() if key in STATED[name]}
    assert settings == STATED[name]


@pytest.mark.parametrize("paper", COMPARED)
def test_every_method_of_a_papers_tables_has_a_preset(paper: str) -> None:
    assert {f"{paper}/{method}" for method in COMPARED[paper].split()} <= set(presets())
    assert sorted(COMPARED) == list(papers())


def test_what_a_paper_does_not_state_is_said_to_be_ours() -> None:
    for name in ("fedlecc/fedprox", "fedlecc/haccs", "fedgwc/fedavgm", "fedgwc/cfl", "clust-psi-pfl/fedyogi"):
        assert "not stated" in presets()[name].ours or "is stated" in presets()[name].ours
    assert all(entry.source for entry in (*presets().values(), *conditions().values()))
    assert presets()["clust-psi-pfl/fedprox"].ours == ""


# Running ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_every_preset_runs(name: str) -> None:
    """None is refused: two rounds, finite weights, and the method is what its text says."""
    method = preset(name)
    state, reports = play(method, tiny_task(), 2)
    assert len(reports) == 2
    assert all(bool(group.weights.params.isfinite().all()) for group in state.groups)
    assert Method.parse(str(method)) == method
    assert method.title == name
    assert name.split("/")[1].split("+")[0] in METHODS.names()


def test_power_of_choice_runs_under_its_papers_own_conditions() -> None:
    """Clust-PSI-PFL's d = 8 is below its cohort of 50: unclipped, the method refuses that."""
    with pytest.raises(UserError, match="d=8"):
        play(preset("clust-psi-pfl/power_of_choice", d_policy="error"), tiny_task(clients=20, cohort=10), 1)
    _, (report,) = play(preset("clust-psi-pfl/power_of_choice"), tiny_task(clients=20, cohort=10), 1)
    assert len(report.selected) == 10


def test_a_preset_runs_from_python() -> None:
    ours, theirs = (run(method, tiny_task(), 2) for method in ("fedentopt/fedprox", "fedprox(mu=0.0001)"))
    assert torch.equal(ours.state.groups[0].weights.params, theirs.state.groups[0].weights.params)


# In an experiment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "title", "mu"),
    [
        ("method = 'clust-psi-pfl/fedprox'", "clust-psi-pfl/fedprox", 0.01),
        ("method = ['fedentopt/fedprox']", "fedentopt/fedprox", 0.0001),
        ("method = ['fedentopt/fedprox(mu=0.5)']", "fedentopt/fedprox(mu=0.5)", 0.5),
        ("method = [{preset = 'fedentopt/fedprox'}]", "fedentopt/fedprox", 0.0001),
        ("[[method]]\npreset = 'fedentopt/fedprox'\nmu = 0.5", "fedentopt/fedprox(mu=0.5)", 0.5),
        (
            "[[method]]\npreset = 'fedentopt/fedentopt+fedprox'\nmu = 2",
            "fedentopt/fedentopt+fedprox(mu=2)",
            2.0,
        ),
        ("[[method]]\npreset = 'fedentopt/fedprox'\nmu = 2\nlabel = 'strong'", "strong", 2.0),
        (
            "[[method]]\npreset = 'fedentopt/fedprox+clip(2)'\nmu = 2",
            "fedentopt/fedprox(mu=2)+clip(norm=2.0)",
            2.0,
        ),
    ],
)
def test_a_preset_in_all_its_spellings(text: str, title: str, mu: float) -> None:
    (method,) = of(text).methods
    assert method.title == title
    assert method.objective == FedProx(mu=mu)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("clust-psi-pfl/fedprox+clip(2.0)", "fedprox+clip(norm=2.0)"),
        ("clip(2.0) + clust-psi-pfl/fedprox(mu=1)", "fedprox(mu=1.0)+clip(norm=2.0)"),
        ("fedgwc/fedgwc+fedavgm+topk(0.5)", "fedavgm+fedgwc(min_group=3)+topk(share=0.5)"),
        ("fedentopt/fedentopt+fedprox/quantity+fedadam", "fedentopt(buffer=0.7)+fedprox(mu=0.0001)+fedadam"),
    ],
)
def test_a_preset_is_composed_with_further_parts(text: str, expanded: str) -> None:
    """A name with a plus is read as the preset that it is before it is read as a preset and a part."""
    method = read_method(text)
    assert str(method) == expanded
    assert read_method(method.title) == method


@pytest.mark.parametrize(
    ("entry", "expanded"),
    [
        (
            "{preset = 'clust-psi-pfl/fedyogi', weighted = false}",
            "fairavg+fedyogi(server_lr=0.001, tau=0.01, v0='zero')",
        ),
        ("'fedlecc/fednova(momentum=0.5)'", "fednova+fedavgm(beta=0.5)"),
        ("{preset = 'cafa/fedavg', server_lr = 0.5}", "server_sgd(lr=0.5)"),
        ("{preset = 'cafa/fedavg', server_lr = 1.0}", "fedavg"),
    ],
)
def test_options_of_a_preset_that_became_parts_are_read_as_before(entry: str, expanded: str) -> None:
    (method,) = of(f"method = [{entry}]").methods
    assert str(method) == expanded


def test_presets_mix_with_expressions_and_keep_their_other_values() -> None:
    text = "method = ['fedavg', 'clust-psi-pfl/cfl(gamma=0.9)', {name = 'fedlecc', label = 'ours'}]"
    methods = of(text).methods
    assert [method.title for method in methods] == ["fedavg", "clust-psi-pfl/cfl(gamma=0.9)", "ours"]
    assert str(methods[1]) == "cfl(eps1=1e-05, eps2=0.1, gamma=0.9)"


def test_the_command_line_changes_a_preset(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("[[method]]\npreset = 'fedlecc/haccs'")
    (method,) = Experiment.read(tmp_path / "e.toml", ["method.fedlecc/haccs.rho=0.25"]).methods
    assert str(method) == "haccs(rho=0.25)"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (
            "'clust-psi-pfl/fedyogy'",
            "unknown preset 'clust-psi-pfl/fedyogy': did you mean 'clust-psi-pfl/fedyogi'",
        ),
        ("'nobody/nothing'", "unknown preset 'nobody/nothing': fedcohort methods --presets lists them"),
        (
            "[{preset = 'fedlecc/haccs', roh = 1}]",
            "fedlecc/haccs.roh: unknown; the preset's settings are of haccs (rho",
        ),
        ("['fedlecc/haccs(rho=2)']", "fedlecc/haccs.rho: 2 must be between 0 and 1"),
        ("['fedlecc/haccs(name=2)']", "fedlecc/haccs.name: unknown"),
        ("['fedlecc/haccs(rho=0.5)+']", "write a preset like fedlecc/haccs(rho=0.9)+clip(1.0)"),
        ("['clip(1.0)+fedlecc/hacs']", "unknown preset 'fedlecc/hacs': did you mean 'fedlecc/haccs'"),
        ("['fedlecc/fednova+fedavg']", "fednova and fedavg cannot be combined: each is an averaging"),
        ("[{preset = 'fedlecc/fednova+clip(1.0)', norm = 2}]", "fedlecc/fednova.norm: unknown"),
        (
            "[{name = 'fedlecc/haccs'}]",
            "method.0.name: 'fedlecc/haccs' is a preset, write preset = 'fedlecc/haccs'",
        ),
        ("[{name = 'fedavg', preset = 'fedlecc/haccs'}]", "method.0: name and preset exclude each other"),
        ("[{preset = 3}]", "method.0.preset: 3 is not text"),
        ("[{preset = 'fedlecc/haccs', label = 3}]", "method.0.label: 3 is not text"),
        ("['fedlecc/haccs', 'fedlecc/haccs']", "method: fedlecc/haccs is listed twice, list it once"),
        (
            "['fedlecc/fedavg', 'cafa/fedavg']",
            "fedlecc/fedavg and cafa/fedavg are the same method, fedavg: list one",
        ),
        ("[{name = 'fedavg', label = 'a'}, {name = 'kl', label = 'a'}]", "two methods are called 'a'"),
    ],
)
def test_mistakes_are_answered_with_a_cure(method: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        of(f"method = {method}")


def test_a_change_goes_to_the_part_that_has_the_setting() -> None:
    changed = preset("fedentopt/fedentopt+fedrs", alpha=0.25)
    assert str(changed) == "fedentopt+fedrs(alpha=0.25)"
    with pytest.raises(UserError, match="mu: unknown"):
        preset("fedentopt/fedentopt+fedrs", mu=0.1)
    with pytest.raises(UserError, match="alpha: belongs to several parts"):
        Preset("a/b", "fedrs+fedgwc", "").parts({"alpha": 0.25})


def test_results_are_kept_under_the_presets_name_with_the_expanded_method(tmp_path: Path) -> None:
    asked = of(f"method = ['clust-psi-pfl/fedyogi', 'fedavg']\n{TINY}")
    home, outcomes = compare(asked, tmp_path, Silent())
    assert [outcome.method for outcome in outcomes] == ["clust-psi-pfl/fedyogi", "fedavg"]
    directory = outcomes[0].directory
    assert directory.parent == home
    assert directory.name.startswith("clust-psi-pfl_fedyogi-")
    kept = tomllib.loads((directory / "config.toml").read_text())
    expanded = "fedyogi(server_lr=0.001, tau=0.01, v0='zero')"
    assert kept["method"] == [{"name": expanded, "label": "clust-psi-pfl/fedyogi"}]
    again = Experiment.of(kept)
    assert (again.methods[0].title, str(again.methods[0])) == ("clust-psi-pfl/fedyogi", expanded)
    assert config_hash(again.table(again.methods[0], 0)) == config_hash(kept)


# Conditions ------------------------------------------------------------------------------------------------

CONDITIONS: dict[str, dict[str, Any]] = {
    "clust-psi-pfl/fmnist": {"rounds": 40, "cohort": 0.5, "lr": 0.001, "batch": 32, "epochs": 5,
                             "clients": 100, "optimiser": "adam"},
    "fedlecc/mnist-250": {"rounds": 150, "lr": 0.005, "batch": 64, "clients": 250, "widths": [200, 200]},
    "fedentopt/cifar10": {"rounds": 500, "cohort": 0.1, "lr": 0.01, "decay": 0.98, "momentum": 0.9,
                          "batch": 64, "weight_decay": 0.0005, "epochs": 5, "alpha": 0.1, "clients": 100},
    "fedentopt/cifar100-c3": {"cohort": 0.08, "classes": 3, "labels": "coarse"},
    "fedentopt/cifar10-vgg11": {"weight_decay": 0.001, "momentum": 0.9, "alpha": 0.1},
    "fedgwc/cifar100": {"rounds": 20000, "cohort": 0.1, "lr": 0.01, "batch": 64, "weight_decay": 0.0004,
                        "epochs": 1, "clients": 100, "alpha": 0.5},
    "fedgwc/inaturalist": {"rounds": 2000, "cohort": 10, "lr": 0.1, "steps": 5},
    "cafa/cifar10": {"rounds": 150, "clients": 20, "low": 0.2, "high": 0.4, "validation": 0.2,
                     "blocks": 30, "best": True},
    "cafa/cifar10/K=60/iid=0.5": {"clients": 60, "iid": 0.5, "low": 0.2, "rounds": 150},
    "clust-psi-pfl/fmnist/alpha=0.05": {"alpha": 0.05, "clients": 100, "min_size": 2, "rounds": 40},
    "clust-psi-pfl/sent140/alpha=50/K=10": {"alpha": 50.0, "clients": 10, "lr": 0.001},
    "clust-psi-pfl/cifar10/S=0.03": {"similarity": 0.03, "clients": 100, "batch": 32},
    "clust-psi-pfl/acsincome/K=50/S=0": {"similarity": 0.0, "clients": 50},
    "fedentopt/cifar100/alpha=0.2": {"alpha": 0.2, "clients": 100, "cohort": 0.1, "last": 10},
    "fedentopt/cifar10-c2/cohort=0.04": {"cohort": 0.04, "classes": 2, "rounds": 500},
    "fedentopt/cifar100/K=150/cohort=3": {"cohort": 3, "clients": 150, "alpha": 0.1, "labels": "coarse"},
    "fedentopt/cifar100-c2/dropout": {"dropout": 0.3, "classes": 2, "stragglers": 0.0},
    "fedentopt/cifar10/stragglers": {"dropout": 0.0, "stragglers": 0.5, "epochs": 5},
    "fedentopt/cinic10-c3/vgg11/cohort=0.05": {"cohort": 0.05, "clients": 200, "classes": 3, "width": 42,
                                               "weight_decay": 0.001, "momentum": 0.9},
    "fedgwc/cifar100/mixed=10-0-90": {"shares": [0.1, 0.9], "alphas": [1000.0, 0.0], "rounds": 20000},
    "fedgwc/cifar100/mixed=10-90-0": {"shares": [0.1, 0.9], "alphas": [1000.0, 0.5]},
    "fedgwc/cifar100/mixed=40-30-30": {"shares": [0.4, 0.3, 0.3], "alphas": [1000.0, 0.05, 0.0]},
    "fedgwc/cifar10/mixed=40-30-30": {"shares": [0.4, 0.3, 0.3], "alphas": [100.0, 0.5, 0.0]},
    "fedgwc/cifar10/domains=50-0-50": {"clean": 0.5, "noise": 0.0, "blur": 0.5, "alpha": 100.0,
                                       "clients": 100, "rounds": 10000},
}  # fmt: skip


def every_name() -> list[str]:
    """All conditions that a table or figure needs, and every word after each of the conditions it fits."""
    named = [name for paper in papers() for entry in shown(paper) for name in entry.names(paper)]
    followed = [f"{base}/{word}" for base in conditions() for word in spellings(base)]
    return list(dict.fromkeys([*conditions(), *named, *followed]))


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_are_the_papers(name: str) -> None:
    table = of(f"method = 'fedavg'\nconditions = '{name}'").table()
    sections = [section for section in table.values() if isinstance(section, dict)]
    flat = {key: value for section in (table, *sections) for key, value in section.items()}
    assert {key: flat[key] for key in CONDITIONS[name]} == CONDITIONS[name]


@pytest.mark.parametrize("name", conditions())
def test_conditions_are_settings_of_an_experiment(name: str) -> None:
    """Each builds, notes what is ours, and is written out in full: nothing of it is looked up again."""
    asked = of(f"method = 'fedavg'\nconditions = '{name}'")
    ours = {each: conditions()[each].ours for each in (name.split("/")[0], name)}
    assert list(asked.notes) == [f"conditions {each}: {words}" for each, words in ours.items() if words]
    again = Experiment.of(tomllib.loads(tomli_w.dumps(asked.table())))
    assert again == asked
    if asked.model["name"] in ("lenet5", "fmnist_cnn", "cifar_cnn", "fedgwc_cnn"):
        shape = (1, 28, 28) if asked.data["source"] == "fashion_mnist" else (3, 32, 32)
        settings = {key: value for key, value in asked.model.items() if key != "name"}
        assert flat_model(asked.model["name"], shape, 10, settings).num_params > 60_000


CLASSES = {"acsincome": 2, "sent140": 2, "amazon": 6, "serengeti": 13, "femnist": 47}  # 10 of the others


@pytest.mark.parametrize("name", every_name())
def test_every_condition_builds(name: str) -> None:
    """As an experiment that its own file repeats, and as a partition of 50,000 examples."""
    asked = of(f"method = 'fedavg'\nconditions = '{name}'")
    assert Experiment.of(tomllib.loads(tomli_w.dumps(asked.table()))) == asked
    if "/" not in name or asked.partition.name == "natural":
        return
    data = name.split("/")[1].split("-")[0]
    classes = (
        100 if name.startswith("fedgwc/cifar100") else 20 if data == "cifar100" else CLASSES.get(data, 10)
    )
    dealt = asked.partition(np.arange(50_000) % classes, asked.seeds[0])
    assert dealt.num_clients == vars(asked.partition)["clients"]


def test_words_are_noted_and_the_last_of_them_wins() -> None:
    asked = of("method = 'fedavg'\nconditions = 'clust-psi-pfl/fmnist/K=50/alpha=0.05'\nrounds = 3")
    (note,) = asked.notes
    assert note.startswith("conditions clust-psi-pfl/fmnist/alpha=0.05: FedArtML's least size")
    assert (asked.rounds, vars(asked.partition)["clients"]) == (3, 50)
    either = (find(f"clust-psi-pfl/fmnist/{words}").settings for words in ("S=0/K=10", "K=10/S=0"))
    assert next(either) == next(either)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "clust-psi-pfl/sent140/alpha=0.05",
            "'alpha=0.05' is none; only alpha=50, alpha=0.7, alpha=0.3, S=1",
        ),
        ("fedentopt/cifar10/cohort=10", "'cohort=10' is none; only alpha=0.2, K=150"),
        ("fedlecc/mnist/K=5", "'K=5' is none; nothing may follow 'fedlecc/mnist'"),
        ("fedentopt/cifar10/dropout/stragglers", "'dropout' and 'stragglers' exclude each other, name one"),
        ("fedentopt/cifar10/dropout/dropout", "'dropout' and 'dropout' exclude each other"),
        ("clust-psi-pfl/fmnist/S=0/alpha=50", "'alpha=50' and 'S=0' exclude each other"),
        ("fedentopt/alpha=0.2", "unknown conditions 'fedentopt/alpha=0.2'"),
        ("fedentopt/", "unknown conditions 'fedentopt/'"),
        ("", "unknown conditions ''"),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        find(name)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("paper", papers())
def test_tables_name_presets_and_say_what_to_look_at(paper: str) -> None:
    for entry in shown(paper):
        unknown = {f"{paper}/{method}" for method in entry.methods if method != "*"} - set(presets())
        assert not unknown, entry.what
        assert entry.refused or entry.how or (entry.conditions and entry.methods and entry.read), entry.what
    assert all(word.source for word in words(paper))
    used = {part for entry in shown(paper) for name in entry.names(paper) for part in name.split("/")[2:]}
    assert used == {text for word in words(paper) for text in word.spelled}  # no word without a use


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("fmnist/alpha=0.05", "fashion-mnist/train-labels-idx1-ubyte.gz"),
        ("cifar10/alpha=0.05", "cifar10/labels.npz"),
        ("sent140/alpha=0.3", "sent140/sent140_100k.csv.gz"),
        ("amazon/alpha=0.3", "amazon_multidomain/reviews.csv.gz"),
        ("amazon/alpha=0.2", "amazon_multidomain/reviews.csv.gz"),
    ],
)
def test_the_hardest_of_clust_psi_pfls_conditions_deal_the_real_labels(
    name: str, file: str, real_data: Path
) -> None:
    """With every seed of the paper's five, to 100 clients."""
    path = real_data / file
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    if path.suffix == ".npz":
        labels = np.load(path)["train"]
    elif path.name.endswith(".csv.gz"):
        kind = "domain" if name.startswith("amazon") else "label"
        labels = pl.read_csv(path)[kind].rank("dense").to_numpy().astype(int) - 1
    else:
        labels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=8)
    asked = of(f"method = 'fedavg'\nconditions = 'clust-psi-pfl/{name}'")
    assert asked.seeds == (0, 1, 2, 3, 4)
    least = vars(asked.partition)["min_size"]
    assert all(asked.partition(labels, seed).sizes.min() >= least for seed in asked.seeds)


def test_the_file_outweighs_its_conditions() -> None:
    own = "rounds = 3\n[local]\nlr = 0.5\n[partition]\nalpha = 0.2"
    asked = of(f"method = 'fedavg'\nconditions = 'fedentopt/cifar10'\n{own}")
    assert (asked.rounds, asked.local.lr, asked.local.momentum) == (3, 0.5, 0.9)
    assert vars(asked.partition)["alpha"] == 0.2
    assert vars(asked.partition)["clients"] == 100


def test_a_section_that_chooses_another_thing_stands_alone() -> None:
    given = {"model": {"name": "mlp", "widths": [200]}, "partition": {"name": "dirichlet", "alpha": 0.1}}
    table = {"model": "lenet5", "partition": {"name": "iid"}}
    assert fill(table, given) == table
    assert fill({"model": {"name": "mlp"}}, given)["model"] == {"name": "mlp", "widths": [200]}
    assert fill({}, given) == given


def test_unknown_conditions_are_answered_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match="unknown conditions 'fedentopt/cifer10': did you mean 'fedentopt/cifar10'"
    ):
        of("method = 'fedavg'\nconditions = 'fedentopt/cifer10'")


def test_the_documented_files_are_experiments() -> None:
    text = (REPOSITORY / "docs" / "experiment-file.md").read_text()
    whole, short = (of(block) for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
    assert [method.title for method in whole.methods][-1] == "strong pull"
    assert (short.rounds, short.local.lr, short.cohort) == (50, 0.005, 0.1)


@pytest.mark.parametrize(("name", "printed"), [("fedlecc/mnist", 0.90), ("fedlecc/fmnist-300", 0.86)])
def test_fedleccs_alphas_give_the_hellinger_distance_of_its_table_2(name: str, printed: float) -> None:
    """The paper prints HD, the root mean square of all pairwise Hellinger distances, instead of alpha."""
    labels = np.repeat(np.arange(10), 6000)  # both data sets are balanced, or nearly so
    deal = of(f"method = 'fedavg'\nconditions = '{name}'").partition(labels, 0)
    counts = np.stack([np.bincount(labels[rows], minlength=10) for rows in deal.owners])
    roots = np.sqrt(counts / counts.sum(1, keepdims=True))
    clients, total = len(roots), roots.sum(0)
    hellinger = ((clients**2 - total @ total) / (clients * (clients - 1))) ** 0.5
    assert hellinger == pytest.approx(printed, abs=0.015)


# The command line ------------------------------------------------------------------------------------------


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0), *capsys.readouterr()


def test_methods_lists_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "methods", "--presets")
    assert code == 0
    assert all(name in out for name in (*presets(), *conditions()))
    assert all(word.name in out for paper in papers() for word in words(paper))
    assert "haccs(rho=0.95)" in out
    assert "Table II: best of 0.1, 0.5, 0.95" in out
    _, one, _ = answer(capsys, "methods", "--presets", "cafa")
    assert "cafa/fedprox" in one
    assert "fedlecc" not in one


def test_presets_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "methods", "--presets", "--json")
    assert json.loads(out) == listing()
    assert {entry["name"] for entry in listing()["presets"]} == set(presets())
    _, out, _ = answer(capsys, "methods", "fedentopt/fedentopt", "--json")
    names = [entry["name"] for entry in json.loads(out)["presets"]]
    variants = ["quantity", "dp", "quantity-dp"]
    assert names == ["fedentopt/fedentopt", *(f"fedentopt/fedentopt/{variant}" for variant in variants)]


def test_an_unknown_preset_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "methods", "fedlecc/hacs")
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown paper or preset 'fedlecc/hacs': did you mean 'fedlecc/haccs'")


def test_help_teaches_presets(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "methods", "--help")
    assert 'method = ["fedlecc/haccs", "clust-psi-pfl/fedyogi"]' in out


def test_text_with_a_slash_in_a_setting_is_no_preset() -> None:
    with pytest.raises(UserError, match="'a/b' is not a number"):
        read_method("fedprox(mu='a/b')")
