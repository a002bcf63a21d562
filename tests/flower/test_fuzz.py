"""Whatever one client answers to any question, the run is the others'."""

import pytest
from hypothesis import HealthCheck, given, settings

from fedcohort.flower import messages
from support.lies import Lie, check, lies


@pytest.mark.deploy
@pytest.mark.parametrize("kind", messages.KINDS)
@settings(
    max_examples=4, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(lie=lies())
def test_any_answer_of_one_client(kind: str, lie: Lie) -> None:
    check(kind, lie)
