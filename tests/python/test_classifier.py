"""The classifier keeps scikit-learn's conventions, and trains what fedcohort trains."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fedcohort as fc
from support.evidence import table

RNG = np.random.default_rng(0)
SITES = np.repeat([f"site {number}" for number in range(6)], 20)
SIDE = np.where(SITES < "site 3", 1, -1)  # half of the sites name what they see the other way round
X = RNG.normal(size=(120, 3))
Y = np.where(X[:, 0] * SIDE > 0, "up", "down")
ALIKE = np.where(X[:, 0] > 0, "up", "down")
QUICK = {"model": "logistic", "rounds": 5, "lr": 1.0, "cohort": 1.0, "random_state": 0}


def test_scikit_learns_own_checks():
    """All of them hold, and one is skipped unless an environment variable asks for it: array API input. None
    of them knows of ``clients``."""
    quick = fc.FederatedClassifier(model="logistic", rounds=2, lr=1.0, partition="iid(clients=2)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sklearn.exceptions.SkipTestWarning)
        results = check_estimator(quick, on_fail="raise")
    passed = [each["check_name"] for each in results if each["status"] == "passed"]
    assert {each["check_name"] for each in results} - set(passed) <= {"check_array_api_input"}
    assert len(passed) > 50


def test_clients_are_those_of_a_federation():
    mine = fc.FederatedClassifier(**QUICK).fit(X, ALIKE, clients=SITES)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    federation = fc.federate((X, ALIKE, SITES), split=fc.SplitPlan(test=0), seed=seed)
    task = fc.Task.of(federation, "logistic", local=fc.Local(lr=1.0), cohort=1.0, seed=seed)
    state = fc.run("fedavg", task, 5).state
    answers = task.model.logits(state.groups[0].weights, federation.train.x).softmax(1)
    assert mine.predict_proba(X) == pytest.approx(answers.numpy(), abs=1e-6)
    assert mine.clients_.tolist() == sorted(set(SITES))
    assert mine.score(X, ALIKE) > 0.95


def test_groups_answer_for_their_clients():
    """Grouped by who agrees with whom, sites that contradict each other are all served well."""
    asked = fc.FederatedClassifier("ifca(groups=2)", **{**QUICK, "rounds": 10, "random_state": 1})
    grouped = asked.fit(X, Y, clients=SITES)
    assert grouped.score(X, Y, clients=SITES) > 0.9
    assert grouped.score(X, Y) < 0.7  # without them, the mean of what contradicts itself
    strangers = np.full(len(X), "elsewhere")
    assert grouped.predict_proba(X, clients=strangers) == pytest.approx(grouped.predict_proba(X))
    again = pickle.loads(pickle.dumps(grouped))  # noqa: S301  # made on the same line
    assert again.predict(X, clients=SITES).tolist() == grouped.predict(X, clients=SITES).tolist()


def test_in_a_pipeline_with_a_grid_search():
    steps = make_pipeline(StandardScaler(), fc.FederatedClassifier(**QUICK, scale=False))
    name = "federatedclassifier"
    search = GridSearchCV(steps, {f"{name}__lr": [1e-6, 1.0]}, cv=2)
    search.fit(X, ALIKE, **{f"{name}__clients": SITES})
    assert search.best_params_ == {f"{name}__lr": 1.0}
    assert search.best_estimator_[-1].clients_.tolist() == sorted(set(SITES))


def test_client_ids_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        asked = fc.FederatedClassifier("ifca(groups=2)", **{**QUICK, "rounds": 10, "random_state": 1})
        routed = asked.set_fit_request(clients=True).set_score_request(clients=True)
        shuffled = StratifiedKFold(2, shuffle=True, random_state=0)
        search = GridSearchCV(routed, {"lr": [1.0]}, cv=shuffled).fit(X, Y, clients=SITES)
        assert search.best_score_ > 0.8
        strangers = GridSearchCV(routed, {"lr": [1.0]}, cv=GroupKFold(2))  # whole sites are held out
        assert strangers.fit(X, Y, clients=SITES, groups=SITES).best_score_ < 0.8


def test_without_clients_rows_are_dealt_by_a_partition():
    assert len(fc.FederatedClassifier(**QUICK).fit(X, ALIKE).clients_) == 10
    skewed = fc.FederatedClassifier(**QUICK, partition="dirichlet(clients=4, alpha=0.5)").fit(X, ALIKE)
    assert len(skewed.clients_) == 4


def test_pictures_and_networks_of_ones_own():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    before = network[1].weight.detach().clone()
    pictures = RNG.normal(size=(40, 1, 2, 2))
    mine = fc.FederatedClassifier(**{**QUICK, "model": network}).fit(pictures, pictures[:, 0, 0, 0] > 0)
    assert mine.predict(pictures).dtype == bool
    assert mine.score(pictures, pictures[:, 0, 0, 0] > 0) > 0.8
    assert network[1].weight.equal(before)


@pytest.mark.parametrize(("asked", "became"), [("auto", "ifca"), ("auto(one_model=True)", "scaffold")])
def test_auto_is_what_is_advised_for_these_labels(asked, became, monkeypatch):
    measured = table(*((skew, {"scaffold": 0.1, "ifca": 0.2}) for skew in (0.0, 0.5, 1.0)))
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: measured)
    mine = fc.FederatedClassifier(asked, **QUICK).fit(X, ALIKE, clients=SITES)
    assert str(mine.method_) == became
    named = fc.FederatedClassifier(became, **QUICK).fit(X, ALIKE, clients=SITES)
    assert mine.predict_proba(X, SITES) == pytest.approx(named.predict_proba(X, SITES))


def test_where_advice_leaves_it_open_auto_is_tuned(monkeypatch):
    """Half of the sites contradict the others, so that one model for all can only guess: on held-out rows
    groups are better, whatever the table says, and so is a learning rate that learns."""
    gains = {"fedprox": 0.3, "ifca(groups=2)": 0.2, "scaffold": 0.1, "fedavgm": 0.05}
    unsure = table(*((skew, gains) for skew in (0.0, 0.5, 1.0)), any=False)
    monkeypatch.setattr("fedcohort.runs.advice.prediction.shipped", lambda: unsure)
    monkeypatch.setattr("fedcohort.python.classifier.EACH", 4)
    asked = fc.FederatedClassifier("auto", **{**QUICK, "rounds": 10, "random_state": 1, "lr": 1e-6})
    mine = asked.fit(X, Y, clients=SITES)
    assert "ifca" in str(mine.method_)
    assert mine.lr_ > 0.01
    assert mine.score(X, Y, clients=SITES) > 0.9
    given = {**QUICK, "rounds": 10, "random_state": 1, "lr": mine.lr_}
    named = fc.FederatedClassifier(mine.method_, **given).fit(X, Y, clients=SITES)
    assert mine.predict_proba(X, SITES) == pytest.approx(named.predict_proba(X, SITES))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "fedavgg"}, "did you mean 'fedavg'"),
        ({"lr": -1.0}, "local.lr"),
        ({"rounds": 0}, "rounds: 0 must be at least 1"),
        ({"settings": {"widths": [3]}}, "model.widths: unknown"),
        ({"partition": "iid+iid"}, "partition: 'iid.iid' is several"),
    ],
)
def test_what_cannot_be_is_a_value_error(changes, words):
    with pytest.raises(ValueError, match=words):
        fc.FederatedClassifier(**{**QUICK, **changes}).fit(X, ALIKE)
