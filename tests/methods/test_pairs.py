"""Every two parts run together, or one sentence names both and says why not."""

from itertools import combinations

import pytest

from fedcohort.core.method import METHODS, Method, make, roles_of
from fedcohort.testing.pairs import check_composition, compose, covering, pairs, parts, refusal
from fedcohort.util.errors import UserError

SELECTORS = [name for name in parts() if roles_of(METHODS.get(name)) == ["selector"]]
TOGETHER = covering()
PUBLISHED = [  # what the papers themselves combine
    *(("fedentopt", other) for other in ("fedprox", "fednova", "scaffold", "fedrs", "fedlc")),
    *(("fedgwc", other) for other in ("fedavg", "fedavgm", "fedprox")),
    *(("clust_psi_pfl", other) for other in SELECTORS),
]


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_parts_run_together(names):
    check_composition(compose(*names))


def test_every_two_parts_run_or_one_sentence_names_both():
    tried = {frozenset(pair) for names in TOGETHER for pair in combinations(names, 2)}
    for pair in pairs():
        sentence = refusal(*pair)
        assert (sentence is None) == (frozenset(pair) in tried)
        if sentence is not None:
            assert all(name in sentence for name in pair)
            assert "cannot be combined: " in sentence
            assert "\n" not in sentence


@pytest.mark.parametrize(("one", "other"), PUBLISHED)
def test_what_papers_combine_is_not_refused(one, other):
    """That it runs is among the cases above."""
    assert refusal(one, other) is None
    assert any({one, other} <= {*names} for names in TOGETHER)


def test_a_part_is_never_refused_for_a_role_that_it_does_not_share():
    for one, other in pairs():
        shared = set(roles_of(METHODS.get(one))) & set(roles_of(METHODS.get(other))) - {"transform"}
        sentence = refusal(one, other) or ""
        assert bool(shared) == ("and a method has one" in sentence)


@pytest.mark.parametrize("selector", ["fedlecc", "kl", "fedentopt", "haccs", "fedcor"])
def test_fedsoft_refuses_selectors_that_ignore_whom_a_centre_fits(selector):
    """FedLECC, for one, would choose the same cohort for every centre: all centres would be equal."""
    with pytest.raises(UserError, match=f"{selector} and fedsoft cannot be combined: fedsoft wants clients"):
        Method.parse(f"{selector}+fedsoft")


@pytest.mark.parametrize("name", parts())
def test_where_nothing_is_sent_nothing_can_be_asked(name):
    (part,) = make(name, {})
    if roles_of(type(part)) == ["selector"]:
        refused = refusal(name, "local_only")
        assert (refused is None) == (not part.uses())
        assert refused is None or "nothing is sent" in refused


def test_the_centralised_reference_takes_no_partner():
    for name in parts():
        with pytest.raises(UserError, match="centralised"):
            Method.parse(f"centralised+{name}")
