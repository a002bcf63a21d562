"""Federations: index lists, counts, fingerprints, and the rules of the per-client splits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedcohort.data import Dataset, Federation, Split, SplitPlan, federate, load
from fedcohort.data.corruptions import blur, change_images
from fedcohort.data.partition import Domain, partitioner
from fedcohort.data.splitting import hold_out, mirror
from fedcohort.util.errors import UserError


def blobs(samples: int = 400, test: int = 0, owner: bool = False) -> Dataset:
    full = load("synthetic", samples=samples + test, classes=4, features=3)
    if not test:
        return full
    ids = np.arange(samples + test) % 7
    return replace(
        full,
        x=full.x[:samples],
        y=full.y[:samples],
        test_x=full.x[samples:],
        test_y=full.y[samples:],
        owner=ids[:samples] if owner else None,
        test_owner=ids[samples:] if owner else None,
    )


def rows_of(split: Split) -> set[int]:
    return set(split.index.tolist())


@pytest.mark.parametrize("test", [0, 200])
def test_a_share_of_the_data_leaves_clients_and_their_labels_as_they_are(test: int) -> None:
    """Of an official test set, too; nobody is left without a row, and a run of another seed has others."""
    deal, data = partitioner("dirichlet", clients=6, alpha=0.3), blobs(2000, test)
    whole, part = (federate(data, deal, SplitPlan(share=share), seed=3) for share in (1.0, 0.1))
    for large, small in ((whole.train, part.train), (whole.test, part.test)):
        assert len(small.index) == pytest.approx(0.1 * len(large.index), abs=6)
    skew, kept = (each.counts / each.counts.sum(1, keepdim=True) for each in (whole, part))
    assert (skew - kept).abs().max() < 0.1
    assert part.sizes[0].min() > 0
    assert federate(data, deal, SplitPlan(share=1e-9), seed=3).train.sizes.sum() <= 6
    with pytest.raises(UserError, match="must be above 0"):
        federate(data, deal, SplitPlan(share=0.0))


def test_split_holds_clients_as_slices() -> None:
    x, y = torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    split = Split.of(x, y, [np.array([0, 3]), np.array([], dtype=int), np.array([5, 1, 2])])
    assert split.sizes.tolist() == [2, 0, 3]
    assert split.rows(2).tolist() == [5, 1, 2]
    assert split.rows(1).tolist() == []
    assert split.rows(2).untyped_storage().data_ptr() == split.index.untyped_storage().data_ptr()
    assert split.counts(3).tolist() == [[2, 0, 0], [0, 0, 0], [0, 1, 2]]
    assert split.client.tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize("quota", [None, torch.tensor([3.0, 1.0, 100.0, 2.0])])
def test_a_client_holds_and_draws_the_same_alone(quota: torch.Tensor | None) -> None:
    """Whatever others there are; only its number goes with it, and the order of classes may be another."""
    whole = federate(blobs(), partitioner("dirichlet", clients=8), SplitPlan(validation=0.25), seed=1)
    among = whole.client(5)
    federation = among.alone(5, ("4", *whole.classes[::-1]))
    alone = federation.client(0)
    assert (federation.num_clients, federation.clients, alone.number) == (1, whole.clients[5:6], 5)
    assert torch.equal(federation.sizes[:, 0], whole.sizes[:, 5])
    assert alone.size() == among.size() == whole.sizes[0, 5]
    assert torch.equal(alone.samples().flip(0)[:4], among.samples())
    swapped = None if quota is None else torch.tensor([0.0, *quota.flip(0)])
    assert alone.size(swapped) == among.size(quota)
    assert torch.equal(alone.samples(swapped).flip(0)[:4], among.samples(quota))
    draws = [(one.rows(7, limit), one.polled(7, 3, 6)) for one, limit in ((among, quota), (alone, swapped))]
    for ours, theirs in zip(*draws, strict=True):
        assert torch.equal(whole.train.x[ours], federation.train.x[theirs])
        assert torch.equal(whole.train.y[ours], 4 - federation.train.y[theirs])
    elsewhere = among.alone(6, whole.classes).client(0)
    assert not torch.equal(elsewhere.polled(7, 3, 6), draws[1][1])
    with pytest.raises(UserError, match="label '0' is none of the federation's classes"):
        among.alone(5, ("1", "2", "3"))


def test_splits_are_disjoint_and_complete() -> None:
    data = blobs()
    federation = federate(data, partitioner("dirichlet", clients=8), SplitPlan(validation=0.25), seed=1)
    parts = [rows_of(split) for split in (federation.train, federation.validation, federation.test)]
    assert sum(len(part) for part in parts) == len(data)
    assert set.union(*parts) == set(range(len(data)))
    assert federation.train.x is federation.test.x
    assert (federation.counts == federation.train.counts(4)).all()
    assert federation.counts.sum() == len(parts[0])
    assert (federation.num_clients, federation.num_classes, federation.shape) == (8, 4, (3,))


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=80),
    clients=st.integers(1, 9),
    share=st.floats(0.01, 0.9),
    seed=st.integers(0, 99),
)
@example(labels=[0, 1], clients=1, share=0.9, seed=0)
def test_hold_out_takes_one_at_least_and_never_all(
    labels: list[int], clients: int, share: float, seed: int
) -> None:
    client = np.random.default_rng(seed).integers(0, clients, len(labels))
    held = hold_out(np.array(labels), client, clients, share, np.random.default_rng(seed))
    for k in range(clients):
        mine = held[client == k]
        expected = 0 if len(mine) < 2 else min(max(1, round(share * len(mine))), len(mine) - 1)
        assert mine.sum() == expected


def test_hold_out_is_stratified_where_it_can_be() -> None:
    """40 + 10 rows at 20 % are 8 + 2; a class with a single row makes the client's cut random."""
    labels = np.array([0] * 40 + [1] * 10)
    seen = set()
    for seed in range(20):
        held = hold_out(labels, np.zeros(50, dtype=int), 1, 0.2, np.random.default_rng(seed))
        assert np.bincount(labels[held]).tolist() == [8, 2]
        lonely = hold_out(np.append(labels, 2), np.zeros(51, dtype=int), 1, 0.2, np.random.default_rng(seed))
        seen.add(tuple(np.bincount(np.append(labels, 2)[lonely], minlength=3)))
    assert len(seen) > 1


def test_equal_classes_take_turns_in_the_test_set() -> None:
    """4 rows of each of 10 classes at 20 % are 8 test rows: two classes go without, not always the same."""
    labels, clients = np.tile(np.repeat(np.arange(10), 4), 50), 50
    client = np.repeat(np.arange(clients), 40)
    held = hold_out(labels, client, clients, 0.2, np.random.default_rng(0))
    assert np.bincount(labels[held], minlength=10).min() > 25


def test_clients_that_split_apart_do_as_they_would_alone() -> None:
    """Also where others know more classes; and equal classes take turns there too."""
    random = np.random.default_rng(1)
    sizes = random.integers(1, 60, 30)
    client = np.repeat(np.arange(30), sizes)
    labels = random.integers(0, 4, len(client)) * 2 + (client % 3 == 0)
    held = hold_out(labels, client, 30, 0.3, np.random.default_rng(5), apart=True)
    for k in range(30):
        own = np.unique(labels[client == k], return_inverse=True)[1]
        alone = hold_out(own, np.zeros_like(own), 1, 0.3, np.random.default_rng(5), apart=True)
        assert (alone == held[client == k]).all()
    labels = np.concatenate([random.permutation(np.repeat(np.arange(10), 4)) for _ in range(50)])
    held = hold_out(labels, np.repeat(np.arange(50), 40), 50, 0.2, np.random.default_rng(0), apart=True)
    assert np.bincount(labels[held], minlength=10).min() > 25


def test_mirror_follows_the_clients_proportions() -> None:
    """Client 0 has 80 + 0 rows, client 1 20 + 100; of 10 + 10 test rows they get 8 + 0 and 2 + 10."""
    labels = np.repeat([0, 1], 100)
    client = np.array([0] * 80 + [1] * 120)
    test = np.repeat([0, 1], 10)
    rows, owner = mirror(labels, np.arange(200), client, 2, test, np.random.default_rng(0))
    assert len(set(rows.tolist())) == 20
    assert np.bincount(test[rows[owner == 0]], minlength=2).tolist() == [8, 0]
    assert np.bincount(test[rows[owner == 1]], minlength=2).tolist() == [2, 10]


def test_mirror_leaves_out_what_the_partition_dropped() -> None:
    """Half of class 1 is nobody's: half of its test rows are nobody's, or its share would double."""
    labels = np.repeat([0, 1], 100)
    rows = np.arange(150)
    dealt, _ = mirror(
        labels, rows, np.zeros(150, dtype=int), 1, np.repeat([0, 1], 10), np.random.default_rng(0)
    )
    assert np.bincount(np.repeat([0, 1], 10)[dealt]).tolist() == [10, 5]


@pytest.mark.parametrize(
    ("data", "partition", "mode"),
    [
        (blobs(), "iid", "pool"),
        (blobs(test=100), "iid", "mirror"),
        (blobs(test=100, owner=True), "iid", "mirror"),
        (blobs(test=100, owner=True), "natural", "pool"),
        (replace(blobs(test=100, owner=True), test_owner=None), "natural", "mirror"),
    ],
)
def test_auto_mode(data: Dataset, partition: str, mode: str) -> None:
    federation = federate(data, partitioner(partition))
    assert federation.provenance["split"]["mode"] == mode
    everything = len(data) + (0 if data.test_x is None else len(data.test_x))
    assert len(federation.train.index) + len(federation.test.index) == everything


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(UserError, match="use 'pool'"):
        federate(blobs(), partitioner("iid"), SplitPlan(mode="mirror"))
    lost = replace(blobs(test=100, owner=True), test_owner=None)
    with pytest.raises(UserError, match=r"use split\.mode 'mirror'"):
        federate(lost, partitioner("natural"), SplitPlan(mode="pool"))


def test_ranges_of_the_plan_hold_in_python() -> None:
    with pytest.raises(UserError, match=r"split\.test: 1\.5 must be between 0 and 0\.9"):
        federate(blobs(), partitioner("iid"), SplitPlan(test=1.5))


def test_clients_of_one_row_only_train() -> None:
    data = replace(blobs(10), owner=np.array([0] * 6 + [1] * 3 + [2]))
    federation = federate(data, partitioner("natural"), SplitPlan(validation=0.5))
    assert federation.test.sizes.tolist() == [1, 1, 0]
    assert federation.validation.sizes.tolist() == [2, 1, 0]
    assert federation.train.sizes.tolist() == [3, 1, 1]
    assert federation.clients == ("0", "1", "2")
    assert federation.provenance["split"]["clients_without_test"] == 1


def test_pooled_is_the_centralised_reference() -> None:
    federation = federate(blobs(), partitioner("iid", clients=5), SplitPlan(validation=0.2))
    pooled = federation.pooled()
    assert pooled.train.sizes.tolist() == [int(federation.train.sizes.sum()), 0, 0, 0, 0]
    assert rows_of(pooled.train) == rows_of(federation.train)
    assert (pooled.validation.sizes == federation.validation.sizes).all()
    assert (pooled.test.sizes == federation.test.sizes).all()
    assert pooled.num_clients == 5


def test_fingerprint_tells_federations_apart() -> None:
    def make(seed: int = 0, data: Dataset | None = None) -> Federation:
        return federate(data or blobs(), partitioner("iid", clients=5), seed=seed)

    base = make()
    other = blobs()
    other.x[0, 0] += 1e-3
    assert base.fingerprint() == make().fingerprint()
    assert len({base.fingerprint(), make(seed=1).fingerprint(), make(data=other).fingerprint()}) == 3
    assert base.fingerprint() != base.pooled().fingerprint()
    for part in ("train", "validation", "test"):
        own = federate(blobs(), partitioner("iid", clients=5), SplitPlan(validation=0.2))
        split = getattr(own, part)
        turned = replace(own, **{part: replace(split, index=split.index.flip(0))})
        assert turned.fingerprint() != own.fingerprint(), part


def test_ten_thousand_clients() -> None:
    data = load("synthetic", samples=50_000, features=2)
    federation = federate(data, partitioner("iid", clients=10_000), SplitPlan(validation=0.25))
    assert federation.train.sizes.tolist() == [3] * 10_000
    assert federation.counts.shape == (10_000, 10)
    assert federation.clients[-1] == "client 9999"


def test_domains_change_the_pictures_of_their_clients_only() -> None:
    digits = load("digits")
    plain = federate(digits, partitioner("domains", clients=10, sigma=0, radius=0))
    dressed = federate(digits, partitioner("domains", clients=10, sigma=0.5, radius=1))
    again = federate(digits, partitioner("domains", clients=10, sigma=0.5, radius=1))
    assert torch.equal(dressed.train.x, again.train.x)
    assert dressed.truth is not None
    for k, domain in enumerate(dressed.truth.tolist()):
        for split, before in ((dressed.train, plain.train), (dressed.test, plain.test)):
            change = split.examples(k)[0] - before.examples(k)[0]
            if domain == 0:
                assert not change.any()
            elif domain == 1:
                assert change.std().item() == pytest.approx(0.5, rel=0.1)
            else:  # a blur keeps the mean and loses contrast
                assert split.examples(k)[0].std() < 0.9 * before.examples(k)[0].std()
    assert torch.equal(plain.train.x, digits.x)


def test_official_test_images_are_changed_too_by_noise_of_their_own() -> None:
    """Black pictures: what is seen of them is the noise."""
    black, labels = torch.zeros(40, 1, 4, 4), torch.arange(40) % 2
    data = Dataset(black, labels, ("a", "b"), test_x=black.clone(), test_y=labels)
    noisy = federate(data, partitioner("domains", clients=4, clean=0, noise=1, blur=0, sigma=0.5))
    assert noisy.test.x.std().item() == pytest.approx(0.5, rel=0.1)
    assert not torch.equal(noisy.train.x, noisy.test.x)


def test_a_blur_keeps_to_its_channel_and_to_its_client() -> None:
    """A white and a black channel stay white and black; a picture of nobody stays as it is."""
    picture = torch.stack([torch.ones(8, 8), torch.zeros(8, 8)])[None]
    torch.testing.assert_close(blur(picture, 2.0), picture)
    dot = torch.zeros(2, 1, 8, 8)
    dot[:, :, 4, 4] = 1
    seen = change_images(dot, np.array([0, -1]), (Domain("blur", blur=2.0),), 0, "train")
    assert seen[0].max() < 0.1
    assert torch.equal(seen[1], dot[1])


def test_domains_need_images() -> None:
    with pytest.raises(UserError, match="use an image source"):
        federate(blobs(), partitioner("domains", clients=4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.full((400, 3), float("nan"))}, "the training set has 1,200 NaN or infinite values"),
        ({"y": torch.zeros(400, dtype=torch.int64)}, "all labels are equal"),
        ({"y": torch.arange(300)}, "400 examples but 300 labels"),
        ({"y": torch.arange(400)}, "labels run from 0 to 399"),
        ({"x": torch.zeros(0, 3)}, "is empty"),
        ({"x": torch.zeros(400, 3, dtype=torch.float64)}, "must be float32"),
        ({"test_x": torch.zeros(5, 3)}, "give both or neither"),
        ({"test_x": torch.zeros(5, 2), "test_y": torch.zeros(5, dtype=torch.int64)}, "prepare both"),
    ],
)
def test_a_bad_data_set_is_refused_in_one_sentence(change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(blobs(), **change)
