"""Numbers are scaled by training rows alone: everybody's, or each client's own, simulated or not."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcohort.data import Dataset, Federation, SplitPlan, federate, scaling
from fedcohort.data.partition import partitioner
from fedcohort.data.scaling import Moments, Scale, merged, moments, scaled
from fedcohort.runs.experiment import Experiment
from fedcohort.util.settings import UserError

PLAN = SplitPlan(test=0.25, validation=0.2)


def patients(seed: int = 0) -> Dataset:
    """Three hospitals of 40, 30 and 20 patients: two numbers on other scales each, and a category."""
    random = np.random.default_rng(seed)
    owner = np.repeat([0, 1, 2], [40, 30, 20])
    numbers = random.normal([[50.0, 1e6]], [[9.0, 3.0]], (90, 2)) + owner[:, None] * [[10.0, 5.0]]
    x = torch.from_numpy(np.column_stack([numbers, random.integers(0, 2, 90)])).float()
    is_number = torch.tensor([True, True, False])
    return Dataset(x, torch.arange(90) % 2, ("ill", "well"), owner=owner, numbers=is_number)


def dealt(data: Dataset, scale: object = "federated") -> Federation:
    return federate(data, partitioner("natural"), PLAN, seed=3, scale=scale)


def raw_training(data: Dataset, federation: Federation) -> np.ndarray:
    return data.x[federation.train.index].double().numpy()


def test_merged_moments_are_those_of_all_training_rows() -> None:
    data = patients()
    federation = dealt(data)
    rows = raw_training(data, federation)
    assert federation.scale is not None
    np.testing.assert_allclose(federation.scale.mean[:2], rows[:, :2].mean(0), rtol=1e-6)
    np.testing.assert_allclose(federation.scale.std[:2], rows[:, :2].std(0), rtol=1e-6)
    assert federation.scale.mean[2] == 0
    assert federation.scale.std[2] == 1  # a category is no quantity
    scaled = federation.train.x[federation.train.index]
    np.testing.assert_allclose(scaled[:, 0].double().mean(), 0, atol=1e-6)
    np.testing.assert_allclose(scaled[:, 0].double().std(correction=0), 1, rtol=1e-6)
    assert torch.equal(scaled[:, 2], data.x[federation.train.index][:, 2])


def test_by_hand() -> None:
    """Of 1, 3 and of 5, 7, 9, one missing: means 2 and 7, spreads 2 and 8; of all: mean 5, spread 40."""
    x = torch.tensor([[1.0], [3.0], [5.0], [7.0], [9.0], [torch.nan]])
    told = moments(x, torch.arange(6), torch.tensor([0, 0, 1, 1, 1, 1]), 2, torch.tensor([True]))
    assert [table.flatten().tolist() for table in told] == [[2, 3], [2, 7], [2, 8]]
    scale = merged(told)
    assert scale.mean.item() == 5
    assert scale.std.item() == pytest.approx(8**0.5)


def test_channels_are_what_columns_are() -> None:
    images = torch.rand(12, 3, 4, 5)
    told = moments(images, torch.arange(12), torch.arange(12) % 2, 2, torch.ones(3, dtype=torch.bool))
    scale = merged(told)
    assert told.number.tolist() == [[120] * 3] * 2
    torch.testing.assert_close(scale.mean, images.mean((0, 2, 3)))
    torch.testing.assert_close(scale.std, images.std((0, 2, 3), correction=0))
    nothing = merged(Moments(*torch.zeros(3, 2, 3, dtype=torch.float64)))
    assert nothing.std.tolist() == [1, 1, 1]  # nothing to divide by


def test_moments_are_of_all_rows_however_many_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "BLOCK", 2)
    x = torch.tensor([[1.0], [3.0], [5.0], [7.0], [9.0]])
    told = moments(x, torch.arange(5), torch.tensor([0, 0, 1, 1, 1]), 2, torch.tensor([True]))
    assert [table.flatten().tolist() for table in told] == [[2, 3], [2, 7], [2, 8]]
    scale = Scale(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([1.0]))
    assert scaled(x, scale, torch.tensor([True])).flatten().tolist() == [0, 1, 2, 3, 4]


def test_a_deviation_below_what_single_precision_tells_is_none() -> None:
    """A million and a thousandth of deviation: a float32 of that size has steps of a sixteenth."""
    one = torch.ones(1, 1, dtype=torch.float64)
    assert merged(Moments(3 * one, 1e6 * one, 3e-6 * one)).std.tolist() == [1]
    assert merged(Moments(3 * one, one, 3e-6 * one)).std.tolist() == pytest.approx([1e-3])


def test_what_is_no_quantity_is_left_alone_whatever_a_scale_says() -> None:
    scale = Scale(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0]), torch.tensor([1.0, 1.0]))
    changed = scaled(torch.tensor([[5.0, 1.0]]), scale, torch.tensor([True, False]))
    assert changed.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize("scale", ["federated", "client"])
def test_no_test_row_and_no_validation_row_has_a_part(scale: str) -> None:
    data = patients()
    before = dealt(data, scale)
    for split in (before.test, before.validation):
        other = replace(data, x=data.x.clone())
        other.x[split.index] += 1000
        after = dealt(other, scale)
        assert torch.equal(after.train.x[after.train.index], before.train.x[before.train.index])
        assert not torch.equal(after.test.x, before.test.x)


def test_other_clients_rows_have_a_part_in_the_common_scale_only() -> None:
    data = patients()
    other = replace(data, x=data.x + 100.0 * torch.from_numpy(data.owner == 2)[:, None])
    for scale, same in (("federated", False), ("client", True), ("none", True)):
        ours, theirs = (dealt(each, scale).train.examples(0)[0] for each in (data, other))
        assert torch.equal(ours, theirs) == same


def test_each_client_by_its_own_rows() -> None:
    federation = dealt(patients(), "client")
    assert federation.scale is None
    for client in range(3):
        x, _ = federation.train.examples(client)
        np.testing.assert_allclose(x[:, 0].double().mean(), 0, atol=1e-5)
        np.testing.assert_allclose(x[:, 0].double().std(correction=0), 1, rtol=1e-5)
    assert not torch.equal(federation.train.x, dealt(patients()).train.x)


def test_none_leaves_numbers_and_fills_gaps_with_the_clients_mean() -> None:
    data = patients()
    assert dealt(data, "none").train.x is data.x
    x = data.x.clone()
    x[::7, 0] = torch.nan
    holes = dealt(replace(data, x=x, gaps="mean"), "none")
    for client in range(3):
        rows = holes.train.rows(client)
        mean = x[rows, 0].nanmean()
        filled = holes.train.x[rows, 0][x[rows, 0].isnan()]
        torch.testing.assert_close(filled, mean.expand_as(filled))


def test_a_client_alone_splits_and_tells_as_among_others() -> None:
    """What lets a deployment give a simulation's numbers: the same rows for training, the same moments."""
    data, federation = patients(), dealt(patients())
    for client in range(3):
        mine = data.owner == client
        own = replace(data, x=data.x[mine], y=data.y[mine], owner=np.zeros(mine.sum(), dtype=int))
        alone = federate(own, partitioner("natural"), PLAN, seed=3, scale=federation.scale)
        for ours, theirs in ((alone.train, federation.train), (alone.test, federation.test)):
            assert torch.equal(ours.examples(0)[0], theirs.examples(client)[0])
        assert all(map(torch.equal, alone.moments.of(0), federation.moments.of(client)))


def images() -> Dataset:
    """Sixty of three kinds, and an official test set."""
    x, kinds = torch.rand(60, 1, 3, 3), torch.arange(60) % 3
    return Dataset(x, kinds, ("a", "b", "c"), x[:9], kinds[:9], numbers=torch.tensor([True]))


def test_seeds_share_images_that_are_scaled_alike() -> None:
    data = images()
    one, two = (federate(data, partitioner("dirichlet", clients=4), seed=seed) for seed in (0, 1))
    assert one.train.x is two.train.x
    assert one.train.index.tolist() != two.train.index.tolist()


def test_data_that_were_scaled_can_be_sent_to_another_process() -> None:
    """Which deals and scales them alike."""
    data, partition = images(), partitioner("dirichlet", clients=4)
    here = federate(data, partition)
    there = federate(pickle.loads(pickle.dumps(data)), partition)  # noqa: S301
    assert there.fingerprint() == here.fingerprint()


def test_what_is_too_far_off_is_one_sentence() -> None:
    data = patients()
    data.x[:, 0] = 1e-20 * torch.randn(90)
    data.x[dealt(data).test.index[0], 0] = 1e30
    with pytest.raises(UserError, match="too far from all others to be scaled"):
        dealt(data)


@pytest.mark.parametrize(
    "facts",
    [None, {}, {"mean": [1.0]}, {"mean": [1.0, 2.0], "std": [1.0]}, {"mean": [1.0], "std": [0.0]},
     {"mean": [float("nan")], "std": [1.0]}, {"mean": ["1"], "std": [1.0]}, {"mean": [1e300], "std": [1.0]}],
)  # fmt: skip
def test_what_is_no_scale_is_refused(facts: object) -> None:
    with pytest.raises(ValueError, match="a scale"):
        Scale.read(facts, 1)
    assert Scale.read({"mean": [1], "std": [0.5]}, 1).std.item() == 0.5


def test_the_setting_is_checked_and_follows_privacy() -> None:
    with pytest.raises(UserError, match=r"data\.scale: 'all' is not"):
        Experiment.of({"method": "fedavg", "data": {"scale": "all"}})
    with pytest.raises(UserError, match=r"data\.scale"):
        dealt(patients(), "all")
    assert Experiment.of({"method": "fedavg"}).scale == "federated"
    for counts in ("noised", "withheld"):
        asked = {"method": "fedavg", "privacy": {"counts": counts}}
        assert Experiment.of(asked).scale == "client"
        assert Experiment.of({**asked, "data": {"scale": "none"}}).scale == "none"
