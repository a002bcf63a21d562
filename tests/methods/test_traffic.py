"""Bytes of a round beside FedAvg's, for every method that sends more or less; those of BatchNorm are in
tests/core/round/test_loop.py.

K = 8 clients of which m = 4 train, C = 4 classes, W bytes of model; a number by itself takes eight, one of a
tensor four unless it counts something. FedAvg's clients tell five numbers of their data once (three sizes,
the shape of an example and that there is no vocabulary), and with an update two numbers and a loss.
"""

from itertools import pairwise

import pytest

from fedcohort.core.faults import Faults
from fedcohort.core.method import METHODS, Method
from fedcohort.testing import play, tiny_task

K, M, C, NUMBER, FLOAT = 8, 4, 4, 8, 4
W = tiny_task().model.init(0).bytes
DATA = 5 * NUMBER * K
COUNTS = NUMBER * K * C
BESIDE = 2 * NUMBER + FLOAT  # steps, samples and mean loss
UP = W + BESIDE

SAME = {"fedavg", "uniform", "plain", "one", "explore", "fedprox", "fedrs", "fedlc", "feddyn", "cfl", "fesem"}
SAME |= {"balanced", "focal", "unchanged", "finetune"}  # what they do they do at the client
SAME |= {"fairavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "fednova", "median", "clip", "server_sgd"}
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
    "scaffold": (0, M * (UP + W), 2 * M * W),  # c_k up, c down
    "scaffold(mode='niid')": (0, M * (UP + W), 2 * M * W),
    "feddyn(scaled=True)": (0, M * UP, M * (W + FLOAT)),  # the mean size
    "qfedavg": (0, M * (UP + FLOAT), M * W),  # the loss before
    "power_of_choice": (0, M * UP + 8 * NUMBER, 8 * W),  # d = 8 are polled, those chosen have the model
    "power_of_choice(d=6)": (0, M * UP + 6 * NUMBER, 6 * W),
    "power_of_choice(variant='rpow-d')": (0, M * UP, M * W),  # the loss comes with every update
    "haccs": (COUNTS, M * UP + K * NUMBER, K * W),  # everybody is polled
    "haccs(loss_source='last_seen')": (COUNTS, M * UP, M * W),
    "fedlecc": (COUNTS, M * UP + K * NUMBER, K * W),
    "cafa": (COUNTS, M * UP + M * M * FLOAT, M * W + M * (M - 1) * W),  # models among peers
    "ifca(groups=3)": (0, M * (UP + NUMBER), 3 * M * W),  # all models; the number of one
    "ifca(groups=3)+scaffold": (0, M * (UP + W + NUMBER), 3 * M * W + M * W),  # and its own c
    "fedcor": (0, M * UP + K * NUMBER, K * W),  # warm-up: everybody is polled
    "topk(0.25)": (0, M * (BESIDE + 35 * 8), M * W),  # of 140 numbers 35, with the place of each
    "topk(0.25)+scaffold": (0, M * (BESIDE + 35 * 8 + W), 2 * M * W),  # control variates are sent whole
    "local_only": (0, 0, 0),
}


def after(text: str, rounds: int, **conditions: object) -> tuple[int, int]:
    state, _ = play(Method.parse(text), tiny_task(**conditions), rounds)  # type: ignore[arg-type]
    return state.bytes_up, state.bytes_down


@pytest.mark.parametrize("text", sorted(SAME | COUNTED | DIFFERENT.keys()))
def test_a_round(text):
    once, up, down = DIFFERENT.get(text, (COUNTS if text in COUNTED else 0, M * UP, M * W))
    once += 0 if text == "local_only" else DATA
    assert after(text, 0) == (once, 0)
    assert after(text, 1) == (once + up, down)


def test_no_method_is_forgotten():
    """FedGWC's losses of each step are in core/round/test_loop.py, where all clients take the same number."""
    known = {text.partition("(")[0] for text in DIFFERENT} | SAME | COUNTED | ELSEWHERE | {"fedgwc"}
    assert set(METHODS.names()) <= known


def test_kl_tells_each_client_how_many_samples_of_each_class_to_use():
    state, (report,) = play(Method.parse("kl"), tiny_task(), 1)
    chosen = len(report.selected)
    assert (state.bytes_up, state.bytes_down) == (DATA + COUNTS + chosen * UP, chosen * (W + C * NUMBER))


def test_fedsoft_asks_everybody_about_all_centres_every_other_round():
    """K (J W + 8 J) when it asks; a chosen client gets one mean of the centres and the strength of its pull.

    In a round that asked, the clients hold all centres already, and know their weights.
    """
    method, task, groups = Method.parse("fedsoft(groups=3)"), tiny_task(), 3
    states = [play(method, task, rounds)[0] for rounds in range(3)]
    chosen = [len(report.selected) for report in play(method, task, 2)[1]]
    asked, quiet = (
        (new.bytes_up - old.bytes_up, new.bytes_down - old.bytes_down) for old, new in pairwise(states)
    )
    assert asked == (K * groups * NUMBER + chosen[0] * UP, K * groups * W + chosen[0] * FLOAT)
    assert quiet == (chosen[1] * UP, chosen[1] * (W + FLOAT))


def test_fedentropy_saves_the_uploads_it_declines():
    """Everybody tells C mean outputs first; who is declined sends no model."""
    state, reports = play(Method.parse("fedentropy"), tiny_task(), 3)
    declined = sum(len(report.declined) for report in reports)
    assert declined
    assert state.bytes_up == DATA + 3 * M * (UP + C * FLOAT) - declined * W
    assert state.bytes_down == 3 * M * W


def test_fedgwc_tells_the_loss_of_every_step():
    """Two epochs of batches of 16: as many numbers as steps, from each of the cohort."""
    task = tiny_task()
    state, (report,) = play(Method.parse("fedgwc"), task, 1)
    sizes = task.federation.train.sizes[report.selected].tolist()
    steps = sum(task.local.steps_for(size) for size in sizes)
    assert steps > 2 * len(sizes)
    assert state.bytes_up == DATA + len(sizes) * (W + 2 * NUMBER) + steps * FLOAT


@pytest.mark.parametrize(("text", "models"), [("fedavg", 1), ("scaffold", 2)])
def test_lost_clients_got_the_model_and_sent_nothing(text, models):
    half = Faults(dropout=0.5)
    sent = DATA + M // 2 * (models * W + BESIDE)
    assert after(text, 1, faults=half) == (sent, models * M * W)
