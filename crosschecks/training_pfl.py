"""Whole training runs against pfl-research: the same data, cohorts and first weights."""

from crosschecks.asking import ask
from crosschecks.ours import CLIENTS, make_training, play
from crosschecks.rows import Pair, Reason, Row

TITLE = "Training: pfl-research"
ABOUT = """Ten clients hold skewed shares of 1439 handwritten digits; four of them train in each of eight
rounds a network of 1210 weights, with five full-batch steps of 0.1, in single precision. The difference is
the greatest of any weight after any round; the scale is the farthest that a weight moved."""

SIGN = Reason(
    "pfl",
    "pfl's control variates have the wrong sign: {} (option II) and {} (option I) take after - before, {}, "
    "where the paper has before - after. Clients are driven apart instead of together. *Swapped* hands the "
    "server's and the client's variate to the local steps the other way round, which cancels the sign; "
    "nothing else is changed.",
    (
        ("pfl/algorithm/scaffold.py", "lambda w: w / (K * model_params.local_learning_rate)"),
        ("pfl/algorithm/scaffold.py", "local_c_plus = model.get_model_difference("),
        ("pfl/model/pytorch.py", "variable).sub_(other_parameters[variable_name])"),
    ),
)
SHARED = Reason(
    "pfl",
    "With option I, and states kept in memory, all clients share one control variate: the difference is a "
    "buffer that the next client overwrites, {}, and {} keeps no copy. *Copies* does.",
    (
        ("pfl/model/pytorch.py", "cache = model_diff if clone else self._model_diff"),
        ("pfl/data/user_state.py", "self._cache[(user_id, key)] = state"),
    ),
)
PAIRS = (
    Pair("FedAvg", "fedavg", "FederatedAveraging"),
    Pair("FedAvgM", "fedavgm(server_lr=0.7)", "momentum"),
    Pair("FedAvgM, Nesterov", "fedavgm(server_lr=0.7, nesterov=True)", "nesterov"),
    Pair("FedProx", "fedprox(mu=0.5)", "FedProx"),
    Pair("SCAFFOLD, option II", "scaffold", "SCAFFOLD II", SIGN),
    Pair("SCAFFOLD, option II", "scaffold", "SCAFFOLD II, swapped"),
    Pair("SCAFFOLD, option I", "scaffold(option='I')", "SCAFFOLD I", SIGN),
    Pair("SCAFFOLD, option I", "scaffold(option='I')", "SCAFFOLD I, swapped", SHARED),
    Pair("SCAFFOLD, option I", "scaffold(option='I')", "SCAFFOLD I, swapped, copies"),
)


def run() -> tuple[list[Row], dict[str, str]]:
    problem = make_training([5] * CLIENTS)
    theirs, versions = ask("pfl", problem)
    rows = [pair.row(play(pair.ours, problem), theirs[pair.theirs], problem.init) for pair in PAIRS]
    return rows, versions
