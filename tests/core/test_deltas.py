"""Factored movements are the matrix they stand for, whatever is done with them."""

from collections.abc import Callable

import pytest
import torch

from fedcohort.core.deltas import BlockRow, Factor, FactoredBlock, Rows, combine


def example(clients: int = 3) -> tuple[Rows, torch.Tensor]:
    """Two layers (5 -> 4 -> 2) of random factors, and the movements written out by their definition."""
    key = torch.Generator().manual_seed(0)
    params, shrink = torch.randn(34, generator=key), torch.tensor([0.0, -0.1, 0.3])[:clients]
    draw = lambda *shape: torch.randn(*shape, generator=key)  # noqa: E731
    owner = torch.arange(clients).repeat(6)  # one sample of each client, six times
    much = draw(6 * clients)
    factors = [
        Factor(draw(6 * clients, 4), draw(6 * clients, 5), 0),
        Factor(draw(6 * clients, 2), draw(6 * clients, 4), 24),
    ]
    block = FactoredBlock(factors, owner, much, params, shrink)
    written = []
    for k in range(clients):
        pieces = []
        for errors, inputs, _ in factors:
            own = (errors * much[:, None])[k::clients]
            pieces += [(own.T @ inputs[k::clients]).flatten(), own.sum(0)]
        written.append(shrink[k] * params + torch.cat(pieces))
    return Rows([BlockRow(block, k) for k in range(clients)]), torch.stack(written)


def test_they_are_the_movements_they_stand_for():
    rows, written = example()
    torch.testing.assert_close(rows.tensor(), written)
    torch.testing.assert_close(rows.rows[1].tensor(), written[1])


def test_a_weighted_sum_needs_no_rows():
    rows, written = example()
    weights = torch.tensor([0.5, -1.0, 2.0])
    torch.testing.assert_close(combine(weights, rows), weights @ written)
    kept = rows[torch.tensor([True, False, True])]
    torch.testing.assert_close(combine(weights[[0, 2]], kept), weights[[0, 2]] @ written[[0, 2]])


def test_rows_of_several_blocks_add_up():
    (first, a), (second, b) = example(), example(2)
    weights = torch.arange(1.0, 6.0)
    both = Rows([*first.rows, *second.rows])
    torch.testing.assert_close(combine(weights, both), weights @ torch.cat([a, b]))


def test_anything_else_sees_an_ordinary_tensor():
    rows, written = example()
    torch.testing.assert_close(rows.sum(0), written.sum(0))
    torch.testing.assert_close(torch.linalg.vector_norm(rows, dim=1), written.norm(dim=1))
    torch.testing.assert_close(rows * 2 + 1, written * 2 + 1)
    torch.testing.assert_close(1 / abs(rows), 1 / written.abs())
    assert ((rows > 0) == (written > 0)).all()
    torch.testing.assert_close(rows[0], written[0])
    torch.testing.assert_close(torch.stack([rows.rows[0], rows.rows[2]]), written[[0, 2]])
    assert len(rows) == 3
    assert rows.shape == written.shape


def spoilt(which: str, value: float) -> Callable[[FactoredBlock], None]:
    """Makes one number of client 1 what it should not be."""

    def spoil(block: FactoredBlock) -> None:
        first = block.factors[0]
        tensor = {"error": first.errors, "input": first.inputs, "much": block.much, "shrink": block.shrink}[
            which
        ]
        tensor[1 if which == "shrink" else 4] = value
        first.errors[4] *= which != "input"  # behind a ReLU that cuts there is no error

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        spoilt("error", torch.nan),
        spoilt("input", torch.inf),
        spoilt("much", torch.inf),
        spoilt("error", 3e38),  # finite, but not its product with the inputs
        spoilt("shrink", torch.inf),
    ],
)
def test_a_client_whose_numbers_broke_is_known_and_does_not_spoil_the_others(spoil):
    rows, written = example()
    block = rows.rows[0].block
    spoil(block)  # client 1
    fresh = block.rows()
    assert [row is None for row in fresh] == [False, True, False]
    weights = torch.tensor([0.5, 2.0])
    torch.testing.assert_close(combine(weights, Rows(fresh[::2])), weights @ written[[0, 2]])
