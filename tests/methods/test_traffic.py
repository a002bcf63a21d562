"""Bytes of a round beside FedAvg's, for every method that sends more or less; those of BatchNorm are in
tests/core/round/test_loop.py.

K = 8 clients of which m = 4 train, C = 4 classes, W bytes of model; a number takes four. FedAvg sends m W up
and m W down.
"""

from itertools import pairwise

import pytest

from fedcohort.core.faults import Faults
from fedcohort.core.method import METHODS, Method
from fedcohort.testing import play, tiny_task

K, M, C, NUMBER = 8, 4, 4, 4
W = tiny_task().model.init(0).bytes
COUNTS = NUMBER * K * C

SAME = {"fedavg", "uniform", "plain", "one", "explore", "fedprox", "fedrs", "fedlc", "feddyn", "cfl", "fesem"}
SAME |= {"fairavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"}
COUNTED = {"fedcls", "fedentopt", "clust_psi_pfl"}  # label counts once, nothing else
ELSEWHERE = {
    "kl",  # below
    "fedsoft",  # below
    "fedentropy",  # below
    "fedconcat",  # test_fedconcat.py, against the published setting
    "fedcor",  # test_fedcor.py: rehearsals
    "centralised",  # test_centralised.py
}
DIFFERENT = {
    "scaffold": (0, 2 * M * W, 2 * M * W),  # c_k up, c down
    "scaffold(mode='niid')": (0, 2 * M * W, 2 * M * W),
    "feddyn(scaled=True)": (0, M * W, M * (W + NUMBER)),  # the mean size
    "fednova": (0, M * (W + NUMBER), M * W),  # steps
    "qfedavg": (0, M * (W + NUMBER), M * W),  # the loss before
    "power_of_choice": (0, M * W + 8 * NUMBER, 8 * W),  # d = 8 are polled, those chosen have the model
    "power_of_choice(d=6)": (0, M * W + 6 * NUMBER, 6 * W),
    "power_of_choice(variant='rpow-d')": (0, M * (W + NUMBER), M * W),
    "haccs": (COUNTS, M * W + K * NUMBER, K * W),  # everybody is polled
    "haccs(loss_source='last_seen')": (COUNTS, M * (W + NUMBER), M * W),
    "fedlecc": (COUNTS, M * W + K * NUMBER, K * W),
    "cafa": (COUNTS, M * W + M * M * NUMBER, M * W + M * (M - 1) * W),  # models among peers
    "ifca(groups=3)": (0, M * (W + NUMBER), 3 * M * W),  # all models; the number of one
    "ifca(groups=3)+scaffold": (0, M * (2 * W + NUMBER), 2 * 3 * M * W),  # and each one's c
    "fedcor": (0, M * W + K * NUMBER, K * W),  # warm-up: everybody is polled
    "local_only": (0, 0, 0),
}


def after(text: str, rounds: int, **conditions: object) -> tuple[int, int]:
    state, _ = play(Method.parse(text), tiny_task(**conditions), rounds)  # type: ignore[arg-type]
    return state.bytes_up, state.bytes_down


@pytest.mark.parametrize("text", sorted(SAME | COUNTED | DIFFERENT.keys()))
def test_a_round(text):
    once, up, down = DIFFERENT.get(text, (COUNTS if text in COUNTED else 0, M * W, M * W))
    assert after(text, 0) == (once, 0)
    assert after(text, 1) == (once + up, down)


def test_no_method_is_forgotten():
    """FedGWC's losses of each step are in core/round/test_loop.py, where all clients take the same number."""
    known = {text.partition("(")[0] for text in DIFFERENT} | SAME | COUNTED | ELSEWHERE | {"fedgwc"}
    assert set(METHODS.names()) <= known


def test_kl_tells_each_client_how_many_samples_of_each_class_to_use():
    state, (report,) = play(Method.parse("kl"), tiny_task(), 1)
    chosen = len(report.selected)
    assert (state.bytes_up, state.bytes_down) == (COUNTS + chosen * W, chosen * (W + C * NUMBER))


def test_fedsoft_asks_everybody_about_all_centres_every_other_round():
    """K (J W + 4 J) when it asks; a chosen client gets one mean of the centres and the strength of its pull.

    In a round that asked, the clients hold all centres already, and know their weights.
    """
    method, task, groups = Method.parse("fedsoft(groups=3)"), tiny_task(), 3
    states = [play(method, task, rounds)[0] for rounds in range(3)]
    chosen = [len(report.selected) for report in play(method, task, 2)[1]]
    asked, quiet = (
        (new.bytes_up - old.bytes_up, new.bytes_down - old.bytes_down) for old, new in pairwise(states)
    )
    assert asked == (K * groups * NUMBER + chosen[0] * W, K * groups * W + chosen[0] * NUMBER)
    assert quiet == (chosen[1] * W, chosen[1] * (W + NUMBER))


def test_fedentropy_saves_the_uploads_it_declines():
    """Everybody tells C mean outputs first; who is declined sends no model."""
    state, reports = play(Method.parse("fedentropy"), tiny_task(), 3)
    declined = sum(len(report.declined) for report in reports)
    assert declined
    assert state.bytes_up == 3 * M * (W + C * NUMBER) - declined * W
    assert state.bytes_down == 3 * M * W


def test_fedgwc_tells_the_loss_of_every_step():
    """Two epochs of batches of 16: as many numbers as steps, from each of the cohort."""
    task = tiny_task()
    state, (report,) = play(Method.parse("fedgwc"), task, 1)
    sizes = task.federation.train.sizes[report.selected].tolist()
    steps = sum(task.local.steps_for(size) for size in sizes)
    assert steps > 2 * len(sizes)
    assert state.bytes_up == len(sizes) * W + steps * NUMBER


@pytest.mark.parametrize(("text", "models"), [("fedavg", 1), ("scaffold", 2)])
def test_lost_clients_got_the_model_and_sent_nothing(text, models):
    half = Faults(dropout=0.5)
    assert after(text, 1, faults=half) == (models * M // 2 * W, models * M * W)
