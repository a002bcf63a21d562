"""PSI over attribute bins and quantity; numbers by hand."""

import io
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from fedcohort.cli.diagnosis_tables import show_features
from fedcohort.data import Federation, Split, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.diagnosis.features import diagnose_features
from fedcohort.stats.attribute_psi import attributes, bin_counts, feature_psi, quantity_terms


def federation(x: np.ndarray, owner: np.ndarray, columns: dict[str, int] | None = None) -> Federation:
    clients = int(owner.max()) + 1
    split = Split.of(
        torch.from_numpy(x.astype(np.float32)),
        torch.zeros(len(x), dtype=torch.long),
        [np.flatnonzero(owner == client) for client in range(clients)],
    )
    names = tuple(f"site {client}" for client in range(clients))
    story = {"data": {"columns": columns}} if columns else {}
    return Federation(split, split, split, ("a", "b"), names, None, story)


def test_quantiles_of_all_samples_bound_the_bins():
    """0 to 7 in four bins of two; a bound belongs to the bin below it."""
    values, client = np.arange(8.0), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    assert bin_counts(values, client, 2, 4).tolist() == [[2, 2, 0, 0], [0, 0, 2, 2]]


def test_a_value_that_fills_several_quantiles_is_one_bin():
    """80 % zeros: all quartiles are 0, so the bins are 0 and more."""
    values = np.array([0.0] * 16 + [0.3, 0.4, 0.5, 0.6])
    assert bin_counts(values, np.zeros(20, dtype=np.int64), 1, 4).tolist() == [[16, 4]]


def test_few_values_and_categories_are_bins_themselves():
    values = np.array([0.0, 1.0, 1.0, 0.0])
    assert bin_counts(values, np.array([0, 0, 1, 1]), 2, 4).tolist() == [[1, 1], [1, 1]]
    codes = np.array([0, 1, 2, 3, 4, 5])
    assert bin_counts(codes, np.zeros(6, dtype=np.int64), 1, 2).shape == (1, 6)


def test_one_hot_columns_are_one_attribute():
    """Two numbers beside three categories; the last row has a category that training never saw."""
    x = np.array([[0.5, 1, 0, 0, 2.0], [0.1, 0, 0, 1, 3.0], [0.2, 0, 0, 0, 4.0]])
    age, ward, dose = attributes(x, {"age": 1, "ward": 3, "dose": 1})
    assert (age.name, ward.name, dose.name) == ("age", "ward", "dose")
    assert ward.values.tolist() == [0, 2, 3]
    assert [column.name for column in attributes(x, {"text": 5})] == [f"text[{k}]" for k in range(5)]
    assert [column.name for column in attributes(x)] == ["x0", "x1", "x2", "x3", "x4"]


def test_psi_of_an_attribute_by_hand():
    """Two clients of 100, bins (75, 25) and (25, 75), the pool (100, 100).

    Half a sample added: p = 75.5 / 101, P = 100.5 / 201 = .5; PSI = 2 (p - .5) ... written out below.
    """
    table = np.array([[[75, 25]], [[25, 75]]])
    high, low = 75.5 / 101, 25.5 / 101
    by_hand = (high - 0.5) * log(high / 0.5) + (low - 0.5) * log(low / 0.5)
    assert feature_psi(table)[:, 0] == pytest.approx([by_hand, by_hand])
    assert feature_psi(table, signed=True)[:, 0] == pytest.approx([-by_hand, by_hand])


def test_quantity_by_hand():
    """Shares .5, .25, .25 against 1/3: (-1/6) ln(2/3) + 2 (1/12) ln(4/3); an empty client has no term."""
    terms = quantity_terms([20, 10, 0, 10])
    assert terms[[0, 1, 3]] == pytest.approx([-log(2 / 3) / 6, log(4 / 3) / 12, log(4 / 3) / 12])
    assert np.isnan(terms[2])
    assert quantity_terms([7, 7, 7]) == pytest.approx([0, 0, 0])


def test_the_shifted_attribute_stands_out_and_the_others_are_chance():
    """Under one distribution WPSI is about (bins - 1)(K - 1) / N = 3 * 3 / 4000."""
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(4), 1000)
    x = random.normal(size=(4000, 5))
    x[owner == 2, 3] += 1
    skew = diagnose_features(federation(x, owner, {f"lab {k}": 1 for k in range(5)}))
    assert skew.chance == pytest.approx([9 / 4000] * 5)
    assert skew.wpsi.argmax() == 3
    assert skew.wpsi[3] > 0.1
    assert (np.delete(skew.wpsi, 3) < 3 * 9 / 4000).all()
    assert skew.psi[:, 3].argmax() == 2
    alone = diagnose_features(federation(x, owner + 1))  # a client without samples is no part of chance
    assert alone.chance == pytest.approx([9 / 4000] * 5)


def test_tables_name_the_attribute_and_the_client():
    owner = np.repeat(np.arange(2), 50)
    x = np.column_stack([owner * 3.0 + np.linspace(0, 1, 100), np.tile([0.0, 1.0], 50)])
    skew = diagnose_features(federation(x, owner, {"creatinine": 1, "[sex]": 1}))
    console = Console(file=io.StringIO(), width=100)
    show_features(skew, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.index("creatinine") < text.index("[sex]")
    assert "site 1" in text
    assert skew.to_dict()["quantity_psi"] == pytest.approx(0)


def test_empty_cells_are_told(tmp_path: Path):
    """The second site records no smokers and half the pressures: that is no difference between patients."""
    rows = ["a,yes,120,ill", "a,no,130,well", "b,,125,ill", "b,,,well"]
    (tmp_path / "patients.csv").write_text(
        "\n".join(["site,smoker,pressure,outcome", *rows]), encoding="utf-8"
    )
    path = str(tmp_path / "patients.csv")
    data = load("table", path=path, client="site", label="outcome", missing="mean")
    skew = diagnose_features(federate(data, partitioner("natural"), SplitPlan(test=0)))
    assert skew.features == ("pressure", "smoker")
    assert skew.to_dict()["empty"] == [0.25, 0.5]
    console = Console(file=io.StringIO(), width=100)
    show_features(skew, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "empty" in text
    assert "50%" in text
