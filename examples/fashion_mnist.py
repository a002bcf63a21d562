# %% [markdown]
# # Comparing methods on Fashion-MNIST
#
# One hundred clients, each with few of the ten kinds of clothing; ten of them train in a round. Does it pay
# to choose them by their labels (`fedentopt`) or losses (`fedlecc`), or to hold local training back
# (`fedprox`)? And is a combination, with momentum at the server, better still?
#
# Data: the official files of Fashion-MNIST, in a folder `fashion-mnist` below `$FEDCOHORT_DATA`, or
# downloaded.
#
# The experiment is a file, `examples/fashion_mnist.toml`:

# %%
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

here = Path(__file__).parent
print((here / "fashion_mnist.toml").read_text())

# %% [markdown]
# ## How skewed is it?

# %%
scratch = tempfile.TemporaryDirectory()
runs = scratch.name  # where results go; yours stay in runs/


def fedcohort(*words):
    """The command, as a terminal of 100 columns shows it."""
    command = [sys.executable, "-m", "fedcohort", *words]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, cwd=here, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


print(fedcohort("diagnose", "fashion_mnist.toml").split("\nFederation")[0])

# %% [markdown]
# ## Run it
#
# `fedcohort run fashion_mnist.toml` runs every method with every seed. It can be stopped at any time, and
# `fedcohort run --resume` continues it to the same end; `fedcohort watch` and `fedcohort serve` look at it
# meanwhile.

# %%
print(fedcohort("run", "fashion_mnist.toml", "--out", runs, "--quiet"))

# %% [markdown]
# ## Look closer
#
# Everything that was measured is in a long table, one line for each round, scope, client and metric. How
# evenly were labels spread over a cohort, and how soon was 70 % reached?

# %%
import polars as pl

for run in json.loads(fedcohort("watch", f"{runs}/fashion_mnist-001", "--json"))["runs"]:
    table = pl.read_csv(Path(run["dir"]) / "table.csv")
    entropy = table.filter(pl.col("metric") == "cohort_entropy")["value"].mean()
    reached = run["metrics"]["rounds_to_target"]
    when = f"in round {reached:.0f}" if reached else "never"
    print(f"{run['method']:18} seed {run['seed']}: cohort entropy {entropy:.2f} bits of 3.32, 70% {when}")

# %% [markdown]
# The entropy of a cohort's labels is what `fedentopt` raises, at most log2(10) = 3.32 bits, and the
# leaderboard says what that is worth here. `fedlecc` trains the clients with the highest losses among similar
# ones: its cohorts hold the fewest labels, in these few rounds it stays behind, and asking clients for their
# losses costs megabytes down. `fedprox` does nothing that could be seen: with one local epoch and so small a
# `mu` there is little to hold back. Two seeds are few, and the momentum's seeds differ by points: `--seeds
# 0,1,2,3,4` tells more.
