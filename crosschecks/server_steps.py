"""Server steps against Flower's strategies: the same start, the same movements, eight rounds."""

from crosschecks.asking import ask
from crosschecks.ours import make_moves, take_steps
from crosschecks.rows import Pair, Reason, Row

TITLE = "Server steps: Flower"
ABOUT = """Ten clients send the same movements of 200 weights, of lengths from 1e-4 to 0.1 and some zero, in
each of eight rounds. Flower computes in double precision. The difference is the greatest of any weight in
any round; the scale is the farthest that a weight moved."""

START = Reason(
    "flower",
    "The paper starts the second moment at tau squared, Flower at zero: {}, {}. `v0='zero'` is Flower's.",
    (
        ("flwr/serverapp/strategy/fedadagrad.py", "np.zeros_like(v)"),
        ("flwr/serverapp/strategy/fedyogi.py", "np.zeros_like(v)"),
    ),
)
AHEAD = Reason(
    "flower",
    "Flower corrects Adam's bias as if one more step had been taken: rounds count from 1, and {} adds "
    "another 1. `bias='flower'` does the same.",
    (("flwr/serverapp/strategy/fedadam.py", "np.power(self.beta_2, server_round + 1.0)"),),
)
PAPER = Reason(
    "flower", "The paper starts at tau squared and corrects no bias; Flower starts at zero and does."
)
PAIRS = (
    Pair("FedAvg", "fedavg", "FedAvg"),
    Pair("FedAvgM", "fedavgm(server_lr=0.7)", "FedAvgM"),
    Pair("FedAdagrad", "fedadagrad(v0='zero')", "FedAdagrad"),
    Pair("FedAdagrad, as the paper", "fedadagrad", "FedAdagrad", START),
    Pair("FedAdam", "fedadam(v0='zero', bias='flower')", "FedAdam"),
    Pair("FedAdam, usual correction", "fedadam(v0='zero', bias='standard')", "FedAdam", AHEAD),
    Pair("FedAdam, as the paper", "fedadam", "FedAdam", PAPER),
    Pair("FedYogi", "fedyogi(v0='zero')", "FedYogi"),
    Pair("FedYogi, as the paper", "fedyogi", "FedYogi", START),
    Pair("q-FedAvg", "qfedavg", "QFedAvg"),
)


def run() -> tuple[list[Row], dict[str, str]]:
    moves = make_moves()
    theirs, versions = ask("flower", moves)
    rows = [pair.row(take_steps(pair.ours, moves), theirs[pair.theirs], moves.init) for pair in PAIRS]
    return rows, versions
