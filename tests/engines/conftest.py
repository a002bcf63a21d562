"""What tests of engines share."""

import pytest

from fedcohort.engines import vector


@pytest.fixture
def without_compiler(monkeypatch):
    """As if LLVM were not installed."""
    monkeypatch.setattr(vector, "find_spec", lambda name: None)
