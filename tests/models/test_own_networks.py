"""Networks as users write them: whatever is inside, every engine trains them alike, and twice the same."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedcohort import UserError
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.last_layer import last_layer
from fedcohort.testing import play, tiny_task

ENGINES = (ReferenceEngine, PoolEngine, BatchedEngine)
FEDERATION = tiny_task().federation
FEATURES, CLASSES = FEDERATION.shape[0], FEDERATION.num_classes


def task_of(network: Callable[[], nn.Module], **local: object) -> Task:
    settings = {"lr": 0.1, "batch": 8, **local}
    return Task.of(FEDERATION, network, local=Local(**settings), cohort=4)  # type: ignore[arg-type]


class Two(nn.Module):
    """Two layers; the one that is used last is made first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, CLASSES)
        self.body = nn.Linear(FEATURES, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())


class Dropping(Two):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.body(x).relu(), 0.5, self.training))


class Frozen(Two):
    def __init__(self) -> None:
        super().__init__()
        self.body.requires_grad_(False)


class Numbered(Two):
    """Reads the features in an order that is a buffer, without those that another buffer masks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(FEATURES - 1, -1, -1))
        self.register_buffer("seen", torch.arange(FEATURES) > 0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, self.order].masked_fill(~self.seen, 0.0))  # type: ignore[index, operator]


def frozen_chain() -> nn.Module:
    network = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    network[0].requires_grad_(False)
    return network


def trained(task: Task, engine: type[ReferenceEngine]) -> Tensor:
    state, _ = play(Method.parse("fedavg"), task, 2, engine=engine(task))
    return state.groups[0].weights.params


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_network_draws_by_itself_depends_on_the_seed_alone(engine):
    task = task_of(Dropping)
    assert task.model.draws_globally
    torch.manual_seed(1)
    once = trained(task, engine)
    torch.manual_seed(2)
    assert trained(task, engine).equal(once)
    assert once.equal(trained(task, ReferenceEngine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("network", [Frozen, frozen_chain])
def test_frozen_layers_stay_as_they_are(network, engine):
    """Whatever else would move them: weight decay, momentum."""
    task = task_of(network, weight_decay=0.1, momentum=0.9)
    frozen, moved = task.model.frozen, trained(task, engine) - task.model.init(task.seed).params
    assert frozen is not None
    fixed = [not p.requires_grad for p in network().parameters() for _ in range(p.numel())]
    assert frozen.tolist() == fixed
    assert not moved[frozen].any()
    assert moved[~frozen].all()


@pytest.mark.parametrize("engine", ENGINES)
def test_buffers_keep_their_kind(engine):
    task = task_of(Numbered)
    torch.testing.assert_close(trained(task, engine), trained(task, ReferenceEngine), rtol=0, atol=1e-5)


def test_the_last_layer_is_the_one_that_answers():
    assert last_layer(task_of(Two).model)[0] == "head"


def test_a_network_that_ends_with_a_function_has_no_last_layer():
    class Ending(Two):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    with pytest.raises(UserError, match=r"ends with no layer of its own: make an nn\.Linear its last part"):
        last_layer(task_of(Ending).model)


def test_making_a_task_disturbs_nobodys_random_numbers():
    torch.manual_seed(0)
    wanted = torch.rand(1)
    torch.manual_seed(0)
    task_of(Dropping)
    assert torch.rand(1).equal(wanted)


def test_a_module_is_copied_and_training_begins_with_its_weights():
    mine = Two()
    before = [p.detach().clone() for p in mine.parameters()]
    task = task_of(mine)
    for seed in (0, 1):
        assert task.model.init(seed).params.equal(torch.cat([p.flatten() for p in before]))
    moved = trained(task, ReferenceEngine)
    assert not moved.equal(task.model.init(0).params)
    assert all(p.equal(was) and p.grad is None for p, was in zip(mine.parameters(), before, strict=True))
    with torch.no_grad():
        mine.head.weight.zero_()  # whatever its owner does later
    assert trained(task, PoolEngine).allclose(moved, atol=1e-6)


def test_a_module_cannot_be_several_models():
    with pytest.raises(UserError, match=r"4 models with different first weights are wanted.*give its class"):
        play(Method.parse("ifca(groups=4)"), task_of(Two()), 1)
    play(Method.parse("ifca(groups=4)"), task_of(Two), 1)


def test_what_makes_no_model_is_told_in_a_sentence():
    bare = nn.Linear(FEATURES, CLASSES)
    bare.held = (bare.weight * 2).relu()  # type: ignore[assignment]  # PyTorch copies no results
    for wrong, words in ((bare, "cannot be copied.*give a function"), (3, "3 is no name of a model")):
        with pytest.raises(UserError, match=words):
            task_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="takes no settings: leave widths out"):
        Task.of(FEDERATION, Two(), {"widths": [3]})
