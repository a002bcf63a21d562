"""Methods that keep a matrix of clients refuse what this machine could not hold."""

import pytest

from fedcohort.core.method import Method
from fedcohort.testing import tiny_task
from fedcohort.util import memory_limit
from fedcohort.util.errors import UserError


@pytest.mark.parametrize("method", ["fedgwc", "fedcor", "fesem"])
def test_what_does_not_fit_is_refused_with_its_size(method, monkeypatch):
    asked = Method.parse(method)
    profile = tiny_task().profile(asked)
    asked.check(profile)
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: 1000)
    with pytest.raises(
        UserError, match=rf"^{method} needs .* GB at the server for 8 clients, and this machine"
    ):
        asked.check(profile)


def test_the_need_of_fedgwc_grows_with_the_square_of_the_clients():
    """Four matrices of 100,000 x 100,000 doubles are 320 GB."""
    few, many = (tiny_task(clients=clients).profile(Method.parse("fedgwc")) for clients in (4, 8))
    need = Method.parse("fedgwc").grouping.server_bytes
    assert (need(few), need(many)) == (4 * 8 * 16, 4 * 8 * 64)


def test_methods_that_scale_need_nothing_special():
    profile = tiny_task().profile(Method.parse("fedlecc+scaffold"))
    assert all(part.server_bytes(profile) == 0 for part in Method.parse("fedlecc+scaffold").parts)
