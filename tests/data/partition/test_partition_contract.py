"""What every protocol promises, whatever the labels."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.data.partition import PARTITIONS, Partition, check, partitioner
from fedcohort.util.errors import UserError
from support.partitions import split_clients

ALL = PARTITIONS.names()
MILD = {"min_size": 1}  # so that any drawn example is feasible
EXTRA = {"dirichlet": MILD, "dirichlet_fedartml": MILD, "classes_per_client": {"classes": 1}}


def deal(name: str, labels: np.ndarray, seed: int, clients: int) -> Partition:
    if name == "natural":
        return split_clients(labels, name, seed, owner=np.arange(len(labels)) % clients)
    return split_clients(labels, name, seed, clients=clients, **EXTRA.get(name, {}))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_disjoint_covering_and_deterministic(name: str, data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 4), min_size=60, max_size=200)))
    clients, seed = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 10_000))
    try:
        partition = deal(name, labels, seed, clients)
    except UserError as error:  # a rare class may leave a client of one class without anything
        assert name == "classes_per_client" and "got no example" in str(error)  # noqa: PT017, PT018
        return
    rows = np.concatenate(partition.owners)
    assert partition.num_clients == clients
    assert len(set(rows.tolist())) == len(rows) <= len(labels)
    assert partition.sizes.min() >= 1
    assert partition.provenance["dropped"] == len(labels) - len(rows)
    if not PARTITIONS.get(name).drops:
        assert sorted(rows.tolist()) == list(range(len(labels)))
    again = deal(name, labels, seed, clients)
    assert all((a == b).all() for a, b in zip(partition.owners, again.owners, strict=True))


@pytest.mark.parametrize("name", [name for name in ALL if name != "natural"])
def test_another_seed_is_another_partition(name: str) -> None:
    labels = np.repeat(np.arange(5), 40)
    one, two = (np.concatenate(deal(name, labels, seed, 12).owners) for seed in (0, 1))
    assert len(one) != len(two) or (one != two).any()


@pytest.mark.parametrize("name", ALL)
def test_story_is_complete(name: str) -> None:
    story = deal(name, np.repeat(np.arange(5), 40), 3, 4).provenance
    assert story["name"] == name
    assert story["seed"] == 3
    assert story["clients"] == 4
    assert {"retries", "dropped"} <= set(story)
    assert json.loads(json.dumps(story))["dropped"] == story["dropped"]  # it is written into run folders


def test_labels_may_be_words() -> None:
    words = np.array(["cat", "dog"] * 50)
    numbers = np.array([0, 1] * 50)
    one, two = (split_clients(labels, "dirichlet", 0, clients=3, min_size=1) for labels in (words, numbers))
    assert all((a == b).all() for a, b in zip(one.owners, two.owners, strict=True))


@pytest.mark.parametrize(
    ("owners", "message"),
    [([[0, 1], [1, 2]], "two clients"), ([[0, 1], [3]], "row 3 of 3"), ([[0], [1]], "lost 1")],
)
def test_check_catches_broken_protocols(owners: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Partition([np.array(rows) for rows in owners]), 3)


def test_a_client_without_examples_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="1 of 2 clients got no example"):
        check(Partition([np.arange(3), np.arange(0)]), 3)


@pytest.mark.parametrize(
    ("name", "parameters", "cure"),
    [
        ("dirichlett", {}, "did you mean 'dirichlet'?"),
        ("dirichlet", {"alfa": 1}, "did you mean 'alpha'?"),
        ("dirichlet", {"alpha": 0}, "must be above 0"),
        ("iid", {"clients": 101}, "lower 'clients' or load more data"),
        ("dirichlet", {"clients": 20}, "lower 'clients' or 'min_size'"),
        ("dirichlet", {"clients": 10, "alpha": 0.001}, "raise 'alpha'"),
        ("classes_per_client", {"classes": 3}, "lower 'classes'"),
        ("mixed_alpha", {"clients": 5, "shares": [1]}, "one of each for every group"),
        ("natural", {}, "client column"),
    ],
)
def test_mistakes_name_the_cure(name: str, parameters: dict, cure: str) -> None:
    with pytest.raises(UserError) as caught:
        split_clients(np.array([0, 1] * 50), name, **parameters)
    assert cure in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_are_checked_in_python_too() -> None:
    protocol = type(partitioner("dirichlet"))(alpha=-1.0)
    with pytest.raises(UserError, match="must be above 0"):
        protocol(np.array([0, 1] * 50))
