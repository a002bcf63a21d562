"""Every registered method keeps every law; every pair of parts runs or is refused by name."""

from itertools import combinations

import pytest

from fedcohort.core.method import METHODS, Method, make, roles_of
from fedcohort.errors import UserError
from fedcohort.testing import CHECKS, play, tiny_task

COMBINATIONS = [
    "fedlecc+fedprox(mu=0.01)+fedavgm+clust_psi_pfl",
    "fedentopt+scaffold",
    "fedgwc+fedavgm+fedprox",
    "fedentopt(epsilon=0.5)+cafa",
    "fedgwc(tolerance=0.9, min_group=1)+scaffold",
    "clust_psi_pfl(smoothing='laplace', signed=True)+fedlecc(loss_source='last_seen')",
    "cfl(eps1=9.0, eps2=0.0)+scaffold",
    "ifca(groups=2, average='gradient')+scaffold+fedlecc",
    "fesem(groups=2)+fedprox",
    "fedsoft(groups=2, every=3)+fedentopt",
    "fedconcat(groups=2, rounds=2)+fedprox",
    "fedconcat(rounds=3, inferred=True, noise=50, top='joined', sampling='group')",
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("text", [*METHODS.names(), *COMBINATIONS])
def test_law(text, check):
    check(Method.parse(text))


@pytest.mark.parametrize(("one", "other"), list(combinations(METHODS.names(), 2)), ids="+".join)
def test_pair(one, other):
    parts = make(one, {}), make(other, {})
    if set(roles_of(type(parts[0]))) & set(roles_of(type(parts[1]))):
        with pytest.raises(UserError, match=f"{one}.*{other}|{other}.*{one}"):
            Method.of(*parts)
        return
    state, reports = play(Method.of(*parts), tiny_task(), 3)
    assert state.round == 3
    assert all(len(report.answered) for report in reports)
