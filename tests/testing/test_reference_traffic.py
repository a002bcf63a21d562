"""The reference traffic against sums done by hand: W = 4 * 199,210 = 796,840 bytes are one model."""

import pytest

from fedcohort.testing.reference_traffic import traffic

W = 796_840
COUNTS = 100 * 10 * 4  # a hundred clients tell ten label counts


@pytest.mark.parametrize(
    ("name", "before", "up", "down"),
    [
        ("fedavg", 0, 10 * W, 10 * W),
        ("scaffold", 0, 20 * W, 20 * W),
        ("fednova", 0, 10 * W + 10 * 4, 10 * W),
        ("fedgwc", 0, 10 * W + 10 * 2 * 4, 10 * W),  # the loss of both local steps
        ("fedentopt", COUNTS, 10 * W, 10 * W),
        ("clust_psi_pfl", COUNTS, 10 * W, 10 * W),  # ten groups, a client of each
        ("power_of_choice", 0, 10 * W + 20 * 4, 20 * W),  # the chosen hold the model already
        ("fedlecc", COUNTS, 10 * W + 100 * 4, 100 * W),
        ("ifca", 0, 10 * W + 10 * 4, 40 * W),  # four models down, the number of the chosen one up
        ("cafa", COUNTS, 10 * W + 100 * 4, 10 * W + 90 * W),
        ("centralised", 600 * (784 * 4 + 4), 0, 0),  # of a client's 10 samples, 2 are for testing, 2 held out
        ("local_only", 0, 0, 0),
    ],
)
def test_bytes(name, before, up, down):
    assert traffic(name) == (before, up, down)
