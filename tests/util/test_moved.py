"""What files written for 0.1.0 import is still found, once, and a warning says where it is now."""

import importlib
import json
import subprocess
import sys

import pytest

from fedcohort.util.moved import MOVED

PACKAGED = {
    f"fedcohort.partition.{name}": f"fedcohort.data.partition.{name}"
    for name in ("_dealing", "_stock", "dirichlet", "dirichlet_clientwise", "mixed_alpha")
}

# What methods, sources, partitions and networks of 0.1.0 took from modules that moved or lost names.
NAMES = {
    "fedcohort": "cluster gaussian",
    "fedcohort.cluster": "bipartition by_mean capped_groups cosines dbscan_groups join_largest "
    "kmeans_by_silhouette kmeans_groups kmedoids_groups optics_groups separation",
    "fedcohort.core": "keyed",
    "fedcohort.core.flat": "Flat Weights",
    "fedcohort.core.keyed": "generator",
    "fedcohort.core.layers": "last_layer",
    "fedcohort.core.limits": "refuse_beyond",
    "fedcohort.core.parts": "Aggregator Anchor Clients Grouping Ids LogitMap Memory Merge Objective PROBES "
    "Part ROLES Recall Round Sampling Selector Trained USES Updates View",
    "fedcohort.core.registry": "Registry",
    "fedcohort.core.rows": "combine",
    "fedcohort.core.settings": "above at_least below between build nearest",
    "fedcohort.data.places": "Places Remote",
    "fedcohort.data.tables": "Column as_numbers as_words client_column find_files label_column learn_column "
    "read_columns read_table require row_order",
    "fedcohort.diagnosis.distances": "hellinger_to_pool wpsi",
    "fedcohort.diagnosis.features": "feature_psi quantity_terms",
    "fedcohort.diagnosis.grouping": "largest psi_features share_clusters side_by_side standardise",
    "fedcohort.engines.loop": "LoopEngine",
    "fedcohort.entropy": "EQUAL entropy",
    "fedcohort.errors": "UserError",
    "fedcohort.histograms": "client_space feature_bins label_histograms",
    "fedcohort.latency": "latencies",
    "fedcohort.models._vgg": "VGG",
    "fedcohort.names": "in_order safe_names",
    "fedcohort.own_code": "in_words own_function",
    "fedcohort.partition": "Domain Partition Partitioner Rows register",
    "fedcohort.partition._dealing": "apportion deal_counts equal_sizes rows_by_client",
    "fedcohort.partition._stock": "Stock",
    "fedcohort.partition.dirichlet": "cut refuse_impossible too_skewed",
    "fedcohort.partition.dirichlet_clientwise": "deal_clientwise",
    "fedcohort.partition.mixed_alpha": "Share assign_groups",
}

IMPORT_ALL = """
import importlib, json, sys, warnings
moved, names = json.load(sys.stdin)
told, lacking = {}, []
for old in moved:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            importlib.import_module(old)
    told[old] = [str(each.message).partition(",")[0] for each in warned if each.category is FutureWarning]
warnings.simplefilter("ignore")
for module, wanted in names.items():
    for name in wanted.split():
        try:
            exec(f"from {module} import {name}")
        except ImportError:
            lacking.append(f"{module}.{name}")
json.dump([told, lacking], sys.stdout)
"""


@pytest.fixture(scope="module")
def found():
    """What importing all that says, and which names it does not find."""
    asked = json.dumps([[*MOVED, *PACKAGED], NAMES])
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], input=asked, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_every_old_path_warns_once_and_names_the_new_one(found):
    assert found[0] == {old: [f"{old} is {home} now"] for old, home in (MOVED | PACKAGED).items()}


def test_every_name_that_files_of_old_import_is_there(found):
    assert found[1] == []


@pytest.mark.filterwarnings("ignore:fedcohort:FutureWarning")
def test_a_module_of_a_package_that_moved_is_loaded_once():
    ours = importlib.import_module("fedcohort.data.partition.dirichlet")
    assert importlib.import_module("fedcohort.partition.dirichlet").Dirichlet is ours.Dirichlet


@pytest.mark.filterwarnings("ignore:fedcohort:FutureWarning")
@pytest.mark.parametrize(
    "name", ["fedcohort.partition.nobody", "fedcohort.errors.nobody", "fedcohort.nobody"]
)
def test_what_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)


def test_a_module_names_what_it_lacks():
    tables = importlib.import_module("fedcohort.data.tables")
    with pytest.raises(AttributeError, match=r"module 'fedcohort.data.tables' has no attribute 'nobody'"):
        _ = tables.nobody
    with pytest.warns(FutureWarning, match=r"data.tables.as_words is fedcohort.data.columns.as_words now"):
        _ = tables.as_words
