"""Balanced: each class that a client holds counts alike, w_c = n / (C n_c)."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.balanced import Balanced
from fedcohort.testing import play, tiny_task
from fedcohort.testing.faulty import with_one_class
from support.toy import LOGITS, loss_and_slope, view_of


def test_a_sample_counts_by_how_rare_its_class_is():
    """n = 40, of which 10 and 30: w = 40 / (2 * 10) = 2 and 40 / (2 * 30) = 2/3. By all three classes, the
    third of which the client lacks, they would be 4/3 and 4/9. Cross-entropies are .46437 and 1.46437."""
    loss, slope = loss_and_slope(Balanced(), 0, 10, 30, 0)
    assert loss == pytest.approx(2 * 0.4643687842, abs=1e-7)
    assert slope == pytest.approx([2 * (0.6285317193 - 1), 2 * 0.2312238974, 2 * 0.1402443833], abs=1e-7)
    assert loss_and_slope(Balanced(), 1, 10, 30, 0)[0] == pytest.approx(2 / 3 * 1.4643687842, abs=1e-7)


def test_a_batch_is_divided_by_its_size():
    """(2 * .46437 + 2/3 * 1.46437) / 2 = .95249; by its weights, 2 + 2/3, it would be .71437."""
    logits, labels = torch.tensor([LOGITS, LOGITS]), torch.tensor([0, 1])
    loss = Balanced().criterion(logits, labels, view_of(10, 30, 0))
    assert float(loss) == pytest.approx(0.9524917, abs=1e-6)


def test_over_all_samples_every_class_counts_alike():
    """The mean of the classes' mean losses: (.46437 + 1.46437) / 2."""
    labels = torch.tensor([0] * 10 + [1] * 30)
    logits = torch.tensor([LOGITS]).expand(40, 3)
    loss = Balanced().criterion(logits, labels, view_of(10, 30, 0))
    assert float(loss) == pytest.approx((0.4643687842 + 1.4643687842) / 2, abs=1e-6)


def test_a_client_of_one_class_trains_as_without():
    task = with_one_class(tiny_task(), 8)
    ours, theirs = (play(Method.parse(text), task, 1)[0] for text in ("balanced", "fedavg"))
    torch.testing.assert_close(ours.groups[0].weights.params, theirs.groups[0].weights.params)


def test_where_classes_are_even_it_is_plain():
    even, plain = (loss_and_slope(part, 2, 7, 7, 7) for part in (Balanced(), Method.of().objective))
    assert even[0] == pytest.approx(plain[0])
    assert even[1] == pytest.approx(plain[1])


@pytest.mark.parametrize("engine", [PoolEngine, BatchedEngine])
def test_engines_agree(engine):
    """None of them fuses weights."""
    task, method = tiny_task(), Method.parse("balanced")
    assert not method.objective.affine
    slow, _ = play(method, task, 2, engine=ReferenceEngine(task))
    fast, _ = play(method, task, 2, engine=engine(task))
    torch.testing.assert_close(fast.groups[0].weights.params, slow.groups[0].weights.params)
    plain, _ = play(Method.of(), task, 2)
    assert not torch.allclose(plain.groups[0].weights.params, slow.groups[0].weights.params, atol=1e-3)
