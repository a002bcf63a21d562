# %% [markdown]
# # Writing a new method
#
# A method is one file. This one takes an idea from long-tailed learning, logit adjustment, to clients whose
# labels are skewed: a client that holds many shoes should not learn that everything is a shoe. It answers one
# of the questions a method can answer, *what does a client minimise*, so its class is an `Objective`.
#
# `fedcohort new method logit_adjusted --role objective` writes the beginnings of such a file. This is the
# finished one, `examples/logit_adjusted.py`:

# %%
import sys
from pathlib import Path

here = Path(__file__).parent
print((here / "logit_adjusted.py").read_text())

# %% [markdown]
# Importing it registers it, under the name of its file. The command line does this for the modules in
# `imports` of an experiment file.

# %%
sys.path.insert(0, str(here))
import logit_adjusted

print(logit_adjusted.LogitAdjusted.__doc__)

# %% [markdown]
# ## Is it sound?
#
# The contract is what holds for every method: the same seed gives the same bytes, a restart changes nothing,
# lost clients and broken numbers are survived, all engines agree, and it learns. A law that is broken raises
# with a sentence.

# %%
from fedcohort.testing import CHECKS, check_method

check_method("logit_adjusted")
print(f"logit_adjusted keeps {len(CHECKS)} laws")

# %% [markdown]
# ## Is it the equation?
#
# The contract cannot know the algebra. A client with 3, 1 and 0 samples of three classes has the adjusted
# shares 4/7, 2/7 and 1/7; with `tau=0` nothing is left of the method.

# %%
from types import SimpleNamespace

import torch

client = SimpleNamespace(counts=torch.tensor([3, 1, 0]))
shift = logit_adjusted.LogitAdjusted(tau=2.0).logits(client).shift
print(shift, torch.allclose(shift, 2 * torch.tensor([4 / 7, 2 / 7, 1 / 7]).log()))
print(logit_adjusted.LogitAdjusted(tau=0.0).logits(client).shift)

# %% [markdown]
# ## Does it help?
#
# Handwritten digits, dealt so that most clients hold few classes. The new file combines with every part of
# the other roles at once, here with the selector FedEntOpt. Each run has two seeds.

# %%
import fedcohort as fc

for method in ("fedavg", "fedlc", "logit_adjusted", "fedentopt", "fedentopt+logit_adjusted"):
    accuracy = []
    for seed in (0, 1):
        federation = fc.federate(
            fc.load("digits"), fc.partitioner("dirichlet", clients=30, alpha=0.1), seed=seed
        )
        local = fc.Local(lr=0.1, epochs=2, batch=16)
        task = fc.Task.of(federation, "mlp", {"widths": [64]}, local=local, cohort=6, seed=seed)
        result = fc.run(method, task, rounds=30, evaluation=fc.Evaluation(every=30))
        accuracy.append(result.metrics["global.accuracy"])
    print(f"{method:26} global accuracy {accuracy[0]:.1%} and {accuracy[1]:.1%}")

# %% [markdown]
# The seeds differ by more than most methods: two are enough to see that it runs and composes, not to claim
# that it helps. `fedcohort run` with more seeds, and a report, would tell.
#
# To bring a method into the library: move its file to `src/fedcohort/methods/`, write its equation test, and
# run `make test`; [CONTRIBUTING](../CONTRIBUTING.md) says what else is asked. To keep it in your own package:
# declare the entry point `fedcohort.methods`.
