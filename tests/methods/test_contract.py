"""Every registered method keeps every law, alone and in company; test_pairs.py has all pairs."""

import pytest

from fedcohort.core.method import Method
from fedcohort.testing import CHECKS
from support.methods import EVERYTHING


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("text", EVERYTHING)
def test_law(text, check):
    check(Method.parse(text))
