# %% [markdown]
# # Four hospitals that may not pool their patients
#
# The UCI heart disease data were collected in four places: Cleveland, Hungary (Budapest), Switzerland (Zurich
# and Basel) and Long Beach (`va`, a hospital of the Veterans Administration). Would a model that they train
# together serve each of them, and which way of training together is best?
#
# Data: the four files `processed.*.data` of the UCI repository, in a folder `heart_disease_uci` below
# `$FEDCOHORT_DATA`.

# %%
import fedcohort as fc

MEANING = {
    "column_1": "age",
    "column_2": "sex",
    "column_3": "chest pain",
    "column_4": "blood pressure",
    "column_6": "blood sugar",
    "column_7": "ECG at rest",
    "column_8": "heart rate",
    "column_9": "angina",
    "column_10": "ST depression",
}
patients = fc.load(
    "table",
    path="heart_disease_uci/*.data",
    header=False,
    client="@file",  # a file is a hospital
    label="column_14",
    threshold=0,  # 0 is healthy, 1 to 4 are degrees of illness
    features=tuple(MEANING),  # measured at all four hospitals
    categorical=("column_3", "column_7"),  # codes, not quantities
    missing="mean",
)
federation = fc.federate(patients, fc.partitioner("natural"), seed=0)
hospitals = [name.removeprefix("processed.") for name in federation.clients]
for name, (healthy, ill) in zip(hospitals, federation.counts.tolist(), strict=True):
    print(f"{name:12} {healthy:3} healthy {ill:3} ill in training: {ill / (healthy + ill):.0%} ill")

# %% [markdown]
# ## How different are they?
#
# Only these counts are needed for a diagnosis; no patient is read.

# %%
diagnosis = fc.diagnose(federation.counts.numpy(), hospitals, ["healthy", "ill"])
print(*diagnosis.verdict.sentences, sep="\n\n")

# %% [markdown]
# ## Train together, alone, or in groups?
#
# Two reference lines frame the answer: `centralised` moves all patients to one place, which nobody is allowed
# to do, and `local_only` shares nothing. Between them one model for all, with and without a correction for
# differences (`scaffold`), and a model for each group of hospitals with similar labels (`clust_psi_pfl`). A
# run takes a fifth of each hospital's patients for testing; five seeds draw five such splits.

# %%
SEEDS = range(5)


def accuracies(method):
    """The mean over seeds, of all test patients and of each hospital's."""
    overall, each = 0.0, dict.fromkeys(federation.clients, 0.0)
    for seed in SEEDS:
        dealt = fc.federate(patients, fc.partitioner("natural"), seed=seed)
        local = fc.Local(lr=0.05, epochs=1, batch=16)
        task = fc.Task.of(dealt, "logistic", local=local, cohort=1.0, seed=seed)
        result = fc.run(method, task, rounds=30, evaluation=fc.Evaluation(every=30))
        overall += result.metrics["global.accuracy"] / len(SEEDS)
        for row in result.rows:
            if row.scope == "personal" and row.client and row.metric == "accuracy":
                each[row.client] += row.value / len(SEEDS)
    return [overall, *each.values()]


print("Accuracy: global, and personal of each hospital")
print(f"{'':18}   all  {'  '.join(f'{name:>11}' for name in hospitals)}")
for method in ("centralised", "local_only", "fedavg", "scaffold", "clust_psi_pfl"):
    first, *others = accuracies(method)
    print(f"{method:18} {first:.1%}  {'  '.join(f'{value:11.1%}' for value in others)}")
everybody = [max(row) / sum(row) for row in federation.counts.tolist()]
print(f"{'the commoner label':18}        {'  '.join(f'{value:11.1%}' for value in everybody)}")

# %% [markdown]
# ## What to read from it
#
# The last line is what a rule would reach that looks at no patient and always says what is commoner at that
# hospital.
#
# - **Long Beach** should not stay alone: what it learns from its own patients is no better than that rule,
#   and every model that the others helped to train is.
# - In **Switzerland** nearly everybody in the files is ill, and no model beats the rule. High accuracy means
#   little there: ask for `personal.balanced_accuracy`, or better, what the prediction is for.
# - **Cleveland and Hungary** lose little by sharing, and a model for each group keeps what Switzerland has
#   alone.
#
# A difference of a point or two is less than five splits of so few patients can tell apart.
