"""The reference traffic against sums done by hand: W = 4 * 199,210 = 796,840 bytes are one model."""

import pytest
from reference_traffic import traffic

W = 796_840
DATA = 100 * 5 * 8  # a hundred clients tell what they have
COUNTS = DATA + 100 * 10 * 8  # and ten label counts
UP = W + 20  # with steps, samples and mean loss


@pytest.mark.parametrize(
    ("name", "before", "up", "down"),
    [
        ("fedavg", DATA, 10 * UP, 10 * W),
        ("scaffold", DATA, 10 * (UP + W), 20 * W),
        ("topk", DATA, 10 * (20 + 19_921 * 8), 10 * W),  # a tenth of the numbers, with the place of each
        ("fedgwc", DATA, 10 * (UP + 4), 10 * W),  # the loss of both local steps
        ("fedentopt", COUNTS, 10 * UP, 10 * W),
        ("clust_psi_pfl", COUNTS, 10 * UP, 10 * W),  # ten groups, a client of each
        ("power_of_choice", DATA, 10 * UP + 20 * 8, 20 * W),  # the chosen hold the model already
        ("fedlecc", COUNTS, 10 * UP + 100 * 8, 100 * W),
        ("ifca", DATA, 10 * (UP + 8), 40 * W),  # four models down, the number of the chosen one up
        ("cafa", COUNTS, 10 * UP + 100 * 4, 10 * W + 90 * W),
        ("centralised", 600 * (784 * 4 + 8), 0, 0),  # of a client's 10 samples, 2 are for testing, 2 held out
        ("local_only", 0, 0, 0),
    ],
)
def test_bytes(name, before, up, down):
    assert traffic(name) == (before, up, down)
