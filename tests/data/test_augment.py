"""Random changes to training images: known pixels and shares, the same on every engine, none in a test."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcohort.core.engine import ModelTrial, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.state import pack, unpack
from fedcohort.core.task import Task
from fedcohort.data import Dataset, Federation, augment, federate, load
from fedcohort.data.augment import Augment, adjust_brightness, adjust_contrast, adjust_saturation, grey
from fedcohort.data.partition import partitioner
from fedcohort.data.scaling import Scale
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.runs.experiment import Experiment
from fedcohort.testing import assert_same, play
from fedcohort.util.errors import UserError
from fedcohort.util.keyed import generator

FEDAVG = Method.parse("fedavg")
LOCAL = Local(lr=0.1, epochs=1, batch=8, augment="fedentopt")


def pixel(*channels: float) -> Tensor:
    return torch.tensor(channels).view(1, -1, 1, 1)


def test_brightness_multiplies_up_to_white() -> None:
    assert adjust_brightness(pixel(0.5, 0.25, 0.9), torch.tensor(1.2)).flatten().tolist() == pytest.approx(
        [0.6, 0.3, 1.0]
    )


def test_contrast_is_the_distance_from_the_mean_grey() -> None:
    """Two pixels of 0.2 and 0.6 have the mean 0.4; halved, their distances from it are 0.1."""
    image = torch.tensor([0.2, 0.6]).view(1, 1, 1, 2)
    assert adjust_contrast(image, torch.tensor(0.5)).flatten().tolist() == pytest.approx([0.3, 0.5])


def test_saturation_is_the_distance_from_the_grey_pixel() -> None:
    """Red seems 0.299 bright: halfway there it is (0.6495, 0.1495, 0.1495)."""
    assert grey(pixel(1, 0, 0)).item() == pytest.approx(0.299)
    assert grey(pixel(1, 1, 1)).item() == pytest.approx(1)
    half = adjust_saturation(pixel(1, 0, 0), torch.tensor(0.5))
    assert half.flatten().tolist() == pytest.approx([0.6495, 0.1495, 0.1495])


@pytest.fixture
def images() -> tuple[Augment, Tensor]:
    """Standardised images whose pixels were between 0 and 1."""
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.1]).view(3, 1, 1)
    return Augment(mean, std), (torch.rand(4000, 3, 2, 2, generator=generator(0, "pixels")) - mean) / std


def test_flips_half_and_greys_a_tenth(
    images: tuple[Augment, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4,000 draws the share is within 0.03 of its odds but once in 10,000 times."""
    monkeypatch.setattr(augment, "STRENGTH", 0.0)
    change, x = images
    out = change(x, generator(0, "augment"))
    pixels, before = out * change.std + change.mean, x * change.std + change.mean
    colourless = (pixels[:, 0] - pixels[:, 2]).abs().amax((1, 2)) < 1e-5
    flipped = (grey(pixels) - grey(before).flip(-1)).abs().amax((1, 2, 3)) < 1e-5
    same = (grey(pixels) - grey(before)).abs().amax((1, 2, 3)) < 1e-5
    assert (flipped | same).all()
    assert flipped.float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert colourless.float().mean().item() == pytest.approx(0.1, abs=0.03)
    torch.testing.assert_close(out[same & ~colourless], x[same & ~colourless])


def test_jitter_keeps_to_its_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    """One grey pixel has neither contrast nor colour: what remains is brightness, 0.8 to 1.2 of it."""
    monkeypatch.setattr(augment, "GREY", 0.0)
    change = Augment(torch.zeros(3, 1, 1), torch.ones(3, 1, 1))
    out = change(torch.full((4000, 3, 1, 1), 0.5), generator(0, "augment"))
    assert out.min().item() == pytest.approx(0.4, abs=2e-3)
    assert out.max().item() == pytest.approx(0.6, abs=2e-3)
    assert out.mean().item() == pytest.approx(0.5, abs=5e-3)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return federate(load("digits"), partitioner("dirichlet", clients=40, alpha=0.5), seed=0)


@pytest.fixture(scope="module")
def task(federation: Federation) -> Task:
    return Task.of(federation, "mlp", {"widths": [16]}, local=LOCAL, cohort=6)


def test_engines_and_workers_agree(task: Task) -> None:
    """Clients as small as these would be trained in blocks if their images were left alone."""
    slow = play(FEDAVG, task, 2)[0]
    fast = [play(FEDAVG, task, 2, engine=PoolEngine(task, workers))[0] for workers in (1, 3)]
    assert_same(*fast, "more workers")
    ours, theirs = fast[0].groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    plain = play(FEDAVG, replace(task, local=replace(LOCAL, augment=None)), 2)[0]
    assert (plain.groups[0].weights.params - theirs).abs().max() > 1e-3


def test_a_restart_changes_nothing(task: Task) -> None:
    half = unpack(pack(play(FEDAVG, task, 2)[0]))
    assert_same(play(FEDAVG, task, 1, half)[0], play(FEDAVG, task, 3)[0], "resumed")


def test_each_round_and_client_has_its_own_images(task: Task) -> None:
    def images(number: int) -> Tensor:
        down = task.model.init(0)._asdict()
        order = Order(0, down, {}, Local(lr=0.1, steps=3))
        job = ReferenceEngine(task).job(FEDAVG.objective, order, number)
        return torch.cat([x for x, _ in job._replace(plan=[torch.arange(8)]).batches()])

    assert torch.equal(images(0), images(0))
    assert not torch.allclose(images(0), images(1), atol=0.01)


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
def test_evaluation_sees_the_images_as_they_are(task: Task, engine: type[ReferenceEngine]) -> None:
    plain = replace(task, local=replace(LOCAL, augment=None))
    weights, test = task.model.init(0), task.federation.test
    changed, unchanged = (engine(one).predict(weights, test, test.index)[0] for one in (task, plain))
    assert torch.equal(changed, unchanged)
    trial = ModelTrial([weights], torch.arange(task.federation.num_clients))
    assert torch.equal(*(engine(one).losses(trial) for one in (task, plain)))


def test_merged_models_train_on_features_as_they_are(task: Task) -> None:
    """What FedConcat's last layer sees is no image."""
    state = play(Method.parse("fedconcat(groups=2, rounds=1)"), task, 2)[0]
    assert state.groups[0].weights.params.isfinite().all()


def test_undoes_what_loading_did(federation: Federation) -> None:
    """By the federation's scale; without any, pixels are what they are."""
    assert augment.augmentation(federation).mean.item() == 0
    scale = Scale(torch.tensor([0.25]), torch.tensor([0.4]), torch.tensor([0.25]))
    change = augment.augmentation(replace(federation, scale=scale))
    assert (change.mean.item(), change.std.item()) == pytest.approx((0.25, 0.4))


def _dealt(x: Tensor) -> Federation:
    data = Dataset(x, torch.arange(len(x)) % 2, ("a", "b"))
    return federate(data, partitioner("iid", clients=2))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.rand(20, 4), r"not examples of shape \(4,\): remove it"),
        (torch.rand(20, 2, 4, 4), r"not examples of shape \(2, 4, 4\): remove it"),
        (
            torch.linspace(-1, 2, 960).view(20, 3, 4, 4),
            "between 0 and 1, but these run from -1 to 2: give bytes",
        ),
    ],
)
def test_what_is_no_image_is_refused(x: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Task.of(_dealt(x), "logistic", local=LOCAL)


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-1, 1), (0.4, 1.6)])
def test_images_that_do_not_lie_between_black_and_white_are_refused(low: float, high: float) -> None:
    """Scaled ones, too: what their scale undoes would be cut off."""
    x = low + (high - low) * torch.rand(40, 3, 4, 4, generator=generator(0, "pixels")).round(decimals=1)

    def task(x: Tensor) -> Task:
        data = Dataset(x, torch.arange(len(x)) % 2, ("a", "b"), numbers=torch.ones(3, dtype=torch.bool))
        return Task.of(federate(data, partitioner("iid", clients=2)), "logistic", local=LOCAL)

    with pytest.raises(UserError, match="no such images have the means and deviations of these: give bytes"):
        task(x)
    x = (x - low) / (high - low)
    x[:, 1] = 1  # a channel may hold one value
    x[:, 2] = x[:, 2].round()  # and nothing but black and white
    assert task(x).augment is not None


def test_is_a_setting_of_the_experiment_file() -> None:
    table = {"method": "fedavg", "local": {"augment": "fedentopt"}}
    experiment = Experiment.of(table)
    assert experiment.local.augment == "fedentopt"
    assert experiment.task(0).augment is not None
    assert Experiment.of(experiment.table()).local == experiment.local
    assert "augment" not in Experiment.of({"method": "fedavg"}).table()["local"]
    with pytest.raises(UserError, match=r"local\.augment: 'flip' is not 'fedentopt' or nothing"):
        Experiment.of({"method": "fedavg", "local": {"augment": "flip"}})
