"""Methods put together from parts: text, defaults, conflicts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.method import METHODS, Method, make, parse, roles_of
from fedcohort.core.profile import Privacy
from fedcohort.methods.fedavg import FedAvg
from fedcohort.methods.fedlecc import FedLECC
from fedcohort.methods.fedprox import FedProx
from fedcohort.methods.one import One
from fedcohort.methods.plain import Plain
from fedcohort.methods.scaffold import Scaffold
from fedcohort.methods.server_sgd import ServerSGD
from fedcohort.methods.unchanged import Unchanged
from fedcohort.methods.uniform import Uniform
from fedcohort.util.errors import UserError


def test_a_role_that_nobody_claims_gets_its_default():
    assert Method.of() == Method(Uniform(), Plain(), FedAvg(), ServerSGD(), One(), Unchanged())
    assert Method.parse("fedlecc+fedprox(mu=0.5)") == Method(
        FedLECC(), FedProx(mu=0.5), FedAvg(), ServerSGD(), One(), Unchanged()
    )


def test_a_part_may_hold_several_roles():
    method = Method.parse("scaffold")
    assert method.objective is method.averaging is method.server_optimiser
    assert [part.name for part in method.parts] == ["uniform", "scaffold", "one", "unchanged"]
    assert roles_of(Scaffold) == ["objective", "averaging", "server_optimiser"]


def test_a_conflict_names_both_parts_and_the_role():
    with pytest.raises(UserError, match="scaffold and fedavgm cannot be combined: each is a server"):
        Method.parse("scaffold+fedavgm")
    with pytest.raises(UserError, match="fedlecc and fedentopt cannot be combined: each is a selector"):
        Method.parse("fedlecc+fedentopt")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fedavg", [("fedavg", {})]),
        ("a + b(x=1)", [("a", {}), ("b", {"x": 1})]),
        ("a(x=-0.5, y='I', z=[1, 2])", [("a", {"x": -0.5, "y": "I", "z": [1, 2]})]),
        ("a(x=true, y=False, z=none, w=poll)", [("a", {"x": True, "y": False, "z": None, "w": "poll"})]),
        ("a()", [("a", {})]),
        ("a(1.0)+b(x, y=2)", [("a", {"": 1.0}), ("b", {"": "x", "y": 2})]),
    ],
)
def test_reading(text, parts):
    assert parse(text) == parts


UNREADABLE = ["", "fedavg+", "fedprox(0.1, 0.2)", "a-b", "fedprox(mu=)", "f(x=1)(y=2)", "f(x=g())", "3"]


@pytest.mark.parametrize("text", [*UNREADABLE, "f(x=1, x=2)", "f(x={[]: 1})"])
def test_what_cannot_be_read_shows_how_to_write_it(text):
    with pytest.raises(UserError, match=r"write it like fedlecc\+fedprox"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fedpox", "unknown method 'fedpox', did you mean 'fedprox'?"),
        ("fedprox(nu=1)", "fedprox.nu: unknown"),
        ("fedprox(mu=-1)", "fedprox.mu: -1 must be at least 0"),
        ("scaffold(option='III')", "scaffold.option: 'III' is not 'I' or 'II'"),
        ("fedprox(1, mu=2)", "fedprox.mu: given twice, once without its name"),
        ("plain(1)", "plain takes no settings"),
        ("fedadam(weighted=3)", "fedadam.weighted: 3 is not true or false"),
    ],
)
def test_mistakes_in_a_part(text, sentence):
    with pytest.raises(UserError) as raised:
        Method.parse(text)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("uniform+plain+fedavg+one", "fedavg"),
        ("fedavg(server_lr=1.0)", "fedavg"),
        ("fedprox(mu=0.01)", "fedprox"),
        ("fedavgm+fedprox(mu=0.1)+fedlecc", "fedlecc+fedprox(mu=0.1)+fedavgm"),
        ("scaffold(option='I', weighted=True)", "scaffold(option='I', weighted=True)"),
        ("fedprox(0.1)", "fedprox(mu=0.1)"),
        ("clip(2)+fedavgm+fednova+fedentopt", "fedentopt+fednova+fedavgm+clip(norm=2.0)"),
        ("topk+clip", "topk+clip"),
        ("clip(2)+clip(2)", "clip(norm=2.0)+clip(norm=2.0)"),
        ("clip+topk", "clip+topk"),
        ("centralised", "centralised"),
        ("finetune", "fedavg+finetune"),
        ("finetune+local_only", "local_only+finetune"),
    ],
)
def test_the_shortest_text(text, shown):
    assert str(Method.parse(text)) == shown


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(METHODS.names()), min_size=1, max_size=3, unique=True), st.floats(0.1, 5))
def test_text_and_back(names, number):
    """Whatever can be combined is read back from its own text, hyper-parameters included."""
    values = {"fedprox": {"mu": number}, "fedavgm": {"server_lr": number}, "fedgwc": {"beta": number}}
    parts = [part for name in names for part in make(name, values.get(name, {}))]
    try:
        method = Method.of(*parts)
    except UserError:
        return
    assert Method.parse(str(method)) == method


def test_needs_are_the_union_of_the_parts_needs():
    assert Method.parse("fedlecc+fedgwc").uses == {"counts", "losses", "trace"}
    assert Method.parse("fedavg").uses == frozenset()
    assert Method.parse("fedlecc(loss_source='last_seen')").uses == {"counts", "loss"}


def test_reference_lines_say_what_they_are():
    assert Method.parse("centralised").pooled
    assert Method.parse("local_only").silent
    assert not Method.parse("fedavg").pooled
    assert not Method.parse("fedavg").silent


def test_privacy_passes_through_all_parts():
    assert Method.parse("fedentopt(epsilon=0.1)+cafa").privacy(Privacy()) == Privacy("noised", 0.1)
    assert Method.parse("fedlecc").privacy(Privacy()) == Privacy()


def test_parts_are_frozen():
    with pytest.raises(AttributeError):
        Method.parse("fedprox").objective.mu = 3  # type: ignore[attr-defined]


def test_a_part_knows_which_hooks_are_its_own():
    """Also when it plays several roles."""
    soft, plain = Method.parse("fedsoft").grouping, Method.parse("fedavg").grouping
    assert soft.has_own("odds")
    assert soft.has_own("asks")
    assert not plain.has_own("odds")
    assert not soft.has_own("regroup")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fedadam(weighted=False)", "fairavg+fedadam"),
        ("fedyogi(weighted=False, bias='standard')", "fairavg+fedyogi(bias='standard')"),
        ("fedadagrad(weighted=True)", "fedadagrad"),
        ("fednova(momentum=0.5)", "fednova+fedavgm(beta=0.5)"),
        ("fednova(momentum=0)", "fednova"),
        ("fedavg(server_lr=0.5)", "server_sgd(lr=0.5)"),
    ],
)
def test_an_option_that_became_a_part_means_what_it_did(old, new):
    assert Method.parse(old) == Method.parse(new)
    assert str(Method.parse(old)) == new


@pytest.mark.parametrize("text", ["fedavg", "fednova", "fedadam", "scaffold", "fedsoft", "clip+topk"])
def test_a_method_is_made_of_its_parts(text):
    method = Method.parse(text)
    assert Method.of(*method.parts) == method


def test_averaging_and_server_optimiser_combine_freely():
    method = Method.parse("fedentopt+fednova+fedavgm+clip(1.0)+topk(0.5)")
    assert [type(part).__name__ for part in method.parts[:5]] == [
        "FedEntOpt", "Plain", "FedNova", "FedAvgM", "One",
    ]  # fmt: skip
    assert [part.name for part in method.transforms] == ["clip", "topk"]
    assert list(method.at_server) == ["averaging", "optimiser", "transform0", "transform1"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fedsoft+clip", "clip and fedsoft cannot be combined: .* it is a whole model"),
        ("feddyn+topk", "topk and feddyn cannot be combined: .* clients remember what they moved"),
        ("local_only+topk", "topk and local_only cannot be combined: .* with it nothing is sent"),
        ("+".join(["clip"] * 17), "17 transforms are too many"),
    ],
)
def test_what_sends_no_movement_has_none_to_transform(text, sentence):
    with pytest.raises(UserError, match=sentence):
        Method.parse(text)
