"""Methods that suites go through: every registered one, and some in company."""

from fedcohort.core.method import METHODS

COMBINATIONS = [
    "fedlecc+fedprox(mu=0.01)+fedavgm+clust_psi_pfl",
    "fedentopt+scaffold",
    "fedgwc+fedavgm+fedprox",
    "fedentopt(epsilon=0.5)+cafa",
    "fedgwc(tolerance=0.9, min_group=1, unbiased=True)+scaffold",
    "clust_psi_pfl(smoothing='laplace', signed=True, sampling='group')+fedlecc(loss_source='last_seen')",
    "cfl(eps1=9.0, eps2=0.0)+scaffold",
    "cfl(eps1=9.0, eps2=0.0, relative=True, ancestors=True)+feddyn(scaled=True)+power_of_choice(until=3)",
    "ifca(groups=2, sharing='trunk', every=2)+scaffold(mode='niid')",
    "ifca(groups=2, average='gradient')+scaffold+fedlecc",
    "fesem(groups=2, layers='last', sampling='group')+fedprox",
    "fedsoft(groups=2, every=3)+explore",
    "fedconcat(groups=2, rounds=2, capacity=1.2)+fedprox",
    "fedconcat(rounds=3, inferred=True, noise=50, top='joined', sampling='group')",
    "fairavg(everything=True, bn='even')+fedlecc(guide='clusters', summary='P(X|y)')",
    "cafa(variant='abfa')+uniform(odds='samples')",
    "fednova+fedadam",
    "fairavg+fedyogi",
    "fedentopt+fednova+fedavgm+clip(1.0)",
    "scaffold+topk(0.3)+clip(0.5)+clip(0.2, at='server')",
    "cfl(eps1=9.0, eps2=0.0)+median+topk(0.5)",
    "fedlecc+fedprox+fedavgm+ifca(groups=2)+clip(1.0)+finetune(steps=3, lr=0.2, layers='last')",
    "fedconcat(groups=2, rounds=2)+fedlc+finetune",
    "focal(balanced=True)+fednova+clust_psi_pfl+finetune(epochs=0.5)",
]
EVERYTHING = [*METHODS.names(), *COMBINATIONS]
FEDERATED = [text for text in EVERYTHING if text != "centralised"]  # whose data stay where they are
