"""Whole training runs against FedLab: the same data, cohorts and first weights."""

from crosschecks.asking import ask
from crosschecks.ours import CLIENTS, make_training, play
from crosschecks.rows import Pair, Reason, Row

TITLE = "Training: FedLab"
ABOUT = """The problem is pfl's above, but that clients take one to four steps a round, and one each or
equal numbers of examples where it says so."""

ALGORITHM = "fedlab/contrib/algorithm"
EVEN = Reason(
    "fedlab",
    "FedLab's FedAvg weighs all clients alike, whatever their sizes: {} gives no weights. `fairavg` does "
    "too.",
    ((f"{ALGORITHM}/basic_server.py", "Aggregators.fedavg_aggregate(parameters_list)"),),
)
SERVER = Reason(
    "fedlab",
    "FedLab's server subtracts the model once from the sum of the cohort's models, {}. The paper adds up "
    "movements, so it is subtracted once per client. FedLab's model runs away.",
    ((f"{ALGORITHM}/feddyn.py", "self.h = self.h - self.alpha"),),
)
CLIENT = Reason(
    "fedlab",
    "FedLab's clients do not feel FedDyn's two terms: {} computes them from weights that {} has detached, so "
    "they have no gradient.",
    (
        (f"{ALGORITHM}/feddyn.py", "l2 = torch.dot(L_t, self.model_parameters)"),
        ("fedlab/utils/serialization.py", "[param.data.view(-1) for param in"),
    ),
)
MISSING = Reason(
    "fedlab",
    "FedLab's trainer divides by a learning rate that it never keeps, {}. Below it is given one from "
    "outside.",
    ((f"{ALGORITHM}/qfedavg.py", "(model_parameters - self.model_parameters) / self.lr"),),
)
LATE = Reason(
    "fedlab",
    "FedLab weighs by the sum of the losses *while* training, {}; the paper by the loss of the sent model. "
    "With one full-batch step they are the same.",
    ((f"{ALGORITHM}/qfedavg.py", "ret_loss += loss.detach().item()"),),
)
SCALED = Reason(
    "fedlab",
    "By default FedLab multiplies a mean whose weights sum to one by clients over cohort, here 2.5: {}.",
    ((f"{ALGORITHM}/fednova.py", "zip(deltas, p)]) * N / K"),),
)
UNEVEN = (
    Pair("FedAvg, even weights", "fairavg", "FedAvg"),
    Pair("FedAvg", "fedavg", "FedAvg", EVEN),
    Pair("FedProx, even weights", "fedprox(mu=0.5)+fairavg", "FedProx"),
    Pair("SCAFFOLD, option II", "scaffold(server_lr=0.7)", "SCAFFOLD"),
    Pair("FedDyn", "feddyn(alpha=0.1)", "FedDyn", SERVER),
    Pair("FedDyn", "feddyn(alpha=0.1)", "FedDyn, server repaired", CLIENT),
    Pair("FedDyn", "feddyn(alpha=0.1)", "FedDyn, both repaired"),
    Pair("q-FedAvg", "qfedavg", "qFedAvg", MISSING),
    Pair("q-FedAvg", "qfedavg", "qFedAvg, lr given", LATE),
)
SINGLE = (Pair("q-FedAvg, one step each", "qfedavg", "qFedAvg, lr given"),)
EQUAL = (
    Pair("FedNova, equal sizes", "fednova", "FedNova", SCALED),
    Pair("FedNova, equal sizes", "fednova", "FedNova, uniform"),
)


def run() -> tuple[list[Row], dict[str, str]]:
    steps = [1 + client % 4 for client in range(CLIENTS)]
    problems = make_training(steps), make_training([1] * CLIENTS), make_training(steps, equal=True)
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for problem, pairs in zip(problems, (UNEVEN, SINGLE, EQUAL), strict=True):
        theirs, versions = ask("fedlab", problem)
        rows += [pair.row(play(pair.ours, problem), theirs[pair.theirs], problem.init) for pair in pairs]
    return rows, versions
