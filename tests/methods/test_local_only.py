"""Local-only: every client walks alone from the common start; nothing is sent."""

import pytest

from fedcohort.core.method import Method
from fedcohort.testing import play, tiny_task
from support.toy import play_toy, position, toy_task


def test_clients_walk_alone():
    """After two rounds of (2, 3) steps client 0 is at 3 - 2 * .9^4, client 1 at -1 + 2 * .9^6; 2 waits."""
    _, state = play_toy("local_only", (0, 1), (0, 1))
    at = {client: float(memory["params"]) for client, memory in state.clients.items()}
    assert at == pytest.approx({0: 3 - 2 * 0.9**4, 1: -1 + 2 * 0.9**6}, abs=1e-6)


def test_the_common_model_never_moves():
    _, state = play_toy("local_only", (0, 1), (1, 2))
    assert position(state) == 1.0


def test_nothing_is_sent():
    state, _ = play(Method.parse("local_only"), tiny_task(), 3)
    assert (state.bytes_up, state.bytes_down) == (0, 0)


def test_a_diverged_client_keeps_its_last_good_model():
    """An infinite example makes client 0's model infinite; what it remembers stays as it was."""
    (state,) = play_toy("local_only", (0, 1), task=toy_task(b=(float("inf"), -1, 1)))
    assert set(state.clients) == {1}
