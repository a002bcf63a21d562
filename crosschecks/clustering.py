"""How methods group clients, against scikit-learn and SciPy called directly on the same inputs."""

from dataclasses import replace
from importlib.metadata import version

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.cluster import DBSCAN, OPTICS, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score, silhouette_score
from sklearn.preprocessing import StandardScaler

import fedcohort as fc
from crosschecks.rows import Row, values
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.data.partition import Partitioner
from fedcohort.methods.clust_psi_pfl import ClustPsiPfl
from fedcohort.methods.fedconcat import FedConcat
from fedcohort.methods.fedgwc import FedGWC
from fedcohort.methods.fedlecc import FedLECC
from fedcohort.stats.clustering import bipartition, cosines
from fedcohort.stats.metrics import davies_bouldin, silhouette, weighted_silhouette
from fedcohort.testing import tiny_task
from fedcohort.util.keyed import key_seed, numpy_generator
from fedcohort.util.words import counted

TITLE = "Groups of clients: scikit-learn and SciPy"
ABOUT = """The methods' own hooks on one side; on the other, features written out for this check and
scikit-learn's and SciPy's clustering with nothing of ours in between. Federations are digits dealt by
`dirichlet` (30 clients, alpha 0.1; 50, alpha 0.5) and `classes_per_client` (40 clients, 2 classes), and
forty clients in four groups. The difference is 1 - adjusted Rand index: 0 when groups are the same up to
their numbers. Clients that OPTICS calls noise are groups of one. *Same starts* are ten from our seed, on
distinct rows in ascending order."""
PARTITIONS = {
    "alpha 0.1": fc.partitioner("dirichlet", clients=30, alpha=0.1),
    "alpha 0.5": fc.partitioner("dirichlet", clients=50, alpha=0.5),
    "two classes": fc.partitioner("classes_per_client", clients=40, classes=2),
}
MANY = 500  # starts of K-means that find the best grouping
MOST = 10  # groups that Clust-PSI-PFL tries


def run() -> tuple[list[Row], dict[str, str]]:
    profiles = {name: profile_of(partition) for name, partition in PARTITIONS.items()}
    planted = replace(profiles["alpha 0.5"], counts=planted_counts(), size=planted_counts().sum(1).long())
    rows = [row for name, profile in profiles.items() for row in by_labels(name, profile)]
    rows += [*by_labels("four groups", planted), *by_k_means("four groups", planted, 50)]
    rows += [*best_of_many("alpha 0.1", profiles["alpha 0.1"]), *by_loss_curves(), *by_updates(), *scores()]
    return rows, {name: version(name) for name in ("scikit-learn", "scipy")}


def by_labels(name: str, profile: Profile) -> list[Row]:
    """Methods that group by label counts."""
    shares = shares_of(profile)
    apart = np.sqrt(((np.sqrt(shares)[:, None] - np.sqrt(shares)) ** 2).sum(axis=2) / 2)
    with np.errstate(divide="ignore"):
        optics = OPTICS(min_samples=2, xi=0.05, metric="precomputed").fit_predict(apart)
    dbscan = DBSCAN(eps=0.3, min_samples=2, metric="precomputed").fit_predict(apart)
    ours = FedLECC().init_selector(profile)["cluster"]
    dense = FedLECC(clustering="dbscan", radius=0.3).init_selector(profile)["cluster"]
    return [
        same_groups(f"FedLECC, {name}", "`fedlecc`", "OPTICS", ours, singles(optics)),
        same_groups(f"FedLECC, {name}", "`fedlecc(clustering='dbscan')`", "DBSCAN", dense, singles(dbscan)),
        *by_k_means(name, profile),
    ]


def by_k_means(name: str, profile: Profile, starts: int | None = None) -> list[Row]:
    """Methods that use K-means, against ten starts from our seed, or ``starts`` from another."""
    concat = FedConcat(groups=4).init_grouping(profile)["group"]
    psi = ClustPsiPfl(max_groups=MOST).init_grouping(profile)["group"]
    shares, features = shares_of(profile), psi_features(profile)
    tried = [k_means(features, count, starts) for count in range(2, MOST + 1)]
    best = max(tried, key=lambda labels: silhouette_score(features, labels))
    how = f"KMeans, {starts} other starts" if starts else "KMeans, same starts"
    return [
        same_groups(f"Clust-PSI-PFL, {name}", "`clust_psi_pfl`", f"{how}, silhouette_score", psi, best),
        same_groups(f"FedConcat, {name}", "`fedconcat(groups=4)`", how, concat, k_means(shares, 4, starts)),
    ]


def k_means(points: np.ndarray, groups: int, starts: int | None) -> np.ndarray:
    """scikit-learn's K-means; None starts where fedcohort does: from distinct rows in order, by its seed."""
    if starts:
        return KMeans(groups, n_init=starts, random_state=1).fit_predict(points)
    rows, member, weight = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    model = KMeans(groups, n_init=10, random_state=key_seed(0, "kmeans") % 2**32)
    return model.fit_predict(rows, sample_weight=weight)[member.reshape(-1)]


def best_of_many(name: str, profile: Profile) -> list[Row]:
    """What ten starts miss where no groups stand out."""
    reason = (
        "Where no groups stand out K-means has many answers, and ten starts do not find the best: this is "
        f"the sum of squares within groups beside that of {MANY} starts. The groups of such a federation "
        "depend on the seed, here as with scikit-learn."
    )
    shares = shares_of(profile)
    ours = FedConcat(groups=4).init_grouping(profile)["group"].numpy()
    sums = (within(shares, labels) for labels in (ours, k_means(shares, 4, MANY)))
    return [values(f"FedConcat, {name}, squares", *sums, reason)]


def within(points: np.ndarray, labels: np.ndarray) -> float:
    """The sum of squared distances to the group's mean."""
    parts = [points[labels == label] for label in np.unique(labels)]
    return float(sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts))


def shares_of(profile: Profile) -> np.ndarray:
    counts = profile.known_counts("crosschecks").numpy()
    return counts / counts.sum(axis=1, keepdims=True)


def psi_features(profile: Profile) -> np.ndarray:
    """The population stability index and each class's term of it, standardised by scikit-learn."""
    counts = profile.known_counts("crosschecks").numpy()
    p, pool = shares_of(profile) + 1e-6, counts.sum(axis=0) / counts.sum() + 1e-6
    terms = (pool - p) * np.log(pool / p)
    return StandardScaler().fit_transform(np.column_stack([terms.sum(axis=1), terms]))


def planted_counts() -> torch.Tensor:
    """Four groups of ten clients that favour classes of their own, [40, 8]."""
    random = numpy_generator(0, "crosschecks", "planted")
    favour = 0.02 + 0.42 * np.repeat(np.eye(4), 2, axis=1)
    return torch.tensor(np.stack([random.multinomial(300, favour[k % 4]) for k in range(40)])).double()


def by_loss_curves() -> list[Row]:
    """FedGWC: spectral clustering of an interaction matrix with three groups in it, or none."""
    random, rows = numpy_generator(0, "crosschecks", "fedgwc"), []
    profile = replace(tiny_task().profile(Method.parse("fedgwc")), cohort=5)
    for name, contrast in (("three groups", 0.5), ("no groups", 0.0)):
        truth = np.arange(30) % 3
        interaction = 0.5 + contrast * (truth[:, None] == truth) + random.normal(0, 0.05, (30, 30))
        affinity = np.exp(-0.5 * brute_upv(interaction.T))
        best, score = np.zeros(30, dtype=int), 1.0
        for count in range(2, 5):
            model = SpectralClustering(count, affinity="precomputed", random_state=1)
            labels = model.fit_predict(affinity)
            if np.bincount(labels).min() >= 3 and (found := davies_bouldin_score(affinity, labels)) < score:
                best, score = labels, found
        ours = FedGWC(min_group=3).parts(interaction, profile)
        rows.append(same_groups(f"FedGWC, {name}", "`fedgwc`", "SpectralClustering", ours, best))
    return rows


def brute_upv(m: np.ndarray) -> np.ndarray:
    """Squared distance of rows k and j without their entries k and j, pair by pair."""
    clients = range(len(m))
    return np.array([[((np.delete(m[k] - m[j], [k, j])) ** 2).sum() for j in clients] for k in clients])


def by_updates() -> list[Row]:
    """CFL: two halves of updates that pull in two directions, or in no particular one."""
    random, rows = numpy_generator(0, "crosschecks", "cfl"), []
    for name, pull in (("two directions", 1.0), ("no direction", 0.0)):
        direction = random.normal(size=(2, 50))
        delta = (pull * direction[np.arange(20) % 2] + random.normal(size=(20, 50))).astype(np.float32)
        similarity = cosines(torch.from_numpy(delta))
        for way in ("complete", "single"):
            ours, call = bipartition(similarity, way, apart=0.0), f"`cfl(linkage='{way}')`"
            tree = fcluster(linkage(pdist(delta, "cosine"), way), 2, "maxclust")
            sk = AgglomerativeClustering(2, metric="cosine", linkage=way).fit_predict(delta)
            rows.append(same_groups(f"CFL, {name}", call, "SciPy linkage", ours, tree))
            rows.append(same_groups(f"CFL, {name}", call, "AgglomerativeClustering", ours, sk))
    return rows


def scores() -> list[Row]:
    """The silhouette that counts identical clients once, and the scores that results print."""
    random = numpy_generator(0, "crosschecks", "scores")
    points, copies = random.normal(size=(25, 3)), random.integers(1, 5, 25)
    labels = np.arange(25) % 3
    many, names = np.repeat(points, copies, axis=0), np.repeat(labels, copies)
    apart = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    weighted = weighted_silhouette(apart, labels, copies.astype(float))
    return [
        values("silhouette, identical clients once", weighted, silhouette_score(many, names)),
        values("silhouette", silhouette(points, labels), silhouette_score(points, labels)),
        values("Davies-Bouldin", davies_bouldin(points, labels), davies_bouldin_score(points, labels)),
    ]


def profile_of(partition: Partitioner) -> Profile:
    federation = fc.federate(fc.load("digits"), partition, seed=0)
    return fc.Task.of(federation, "logistic").profile(Method.of(FedLECC()))


def singles(labels: np.ndarray) -> np.ndarray:
    """Noise (-1) as groups of one."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)


def same_groups(what: str, call: str, peer: str, ours: object, theirs: np.ndarray) -> Row:
    a, b = (np.unique(np.asarray(labels), return_inverse=True)[1] for labels in (ours, theirs))
    groups = tuple(f"{who}: {counted(found.max() + 1, 'group')}" for who, found in ((call, a), (peer, b)))
    return Row(what, *groups, 1 - float(adjusted_rand_score(a, b)), 1.0)
