"""Numbers in sentences."""

import pytest

from fedcohort.util.words import counted, some


@pytest.mark.parametrize(
    ("number", "what", "words"),
    [
        (1, "client", "1 client"),
        (0, "client", "0 clients"),
        (2, "infinite value", "2 infinite values"),
        (1.2, "round", "1 round"),  # it is shown as 1
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
        (10_000, "run", "10,000 runs"),
    ],
)
def test_one_is_not_told_of_several(number, what, words):
    assert counted(number, what) == words


def test_of_many_the_first_are_named():
    assert [some("abc", most) for most in (2, 3)] == ["a, b and 1 more", "a, b, c"]
    assert some(range(9), 1, "{:.1f}".format) == "0.0 and 8 more"
