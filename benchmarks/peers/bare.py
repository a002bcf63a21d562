"""No framework: a network, ``torch.optim.SGD`` and a loop over the cohort. What every framework adds to."""

import numpy as np
import torch

from benchmarks.measure import Stopwatch, read_arguments, report
from fedcohort.bench import plain_torch
from fedcohort.bench.jobs import load


def main() -> None:
    arguments = read_arguments(shuffle=(int, 0, "seed of another order of the examples; 0: the stored one"))
    torch.set_num_threads(arguments.threads)
    data, watch = load(arguments.folder), Stopwatch()
    network = plain_torch.first_network(data)
    weights = plain_torch.get_weights(network)
    for number in range(1 + arguments.rounds):
        watch.begin()
        total, samples = torch.zeros_like(weights), data.samples(number)
        for place in range(data.job.cohort):
            plain_torch.set_weights(network, weights)
            x, y = plain_torch.examples(data, number, place)
            if arguments.shuffle:
                order = np.random.default_rng([arguments.shuffle, number, place]).permutation(len(y))
                x, y = x[order], y[order]
            plain_torch.train(network, x, y, data.job)
            total.add_(plain_torch.get_weights(network), alpha=len(y) / samples)
        weights = total
        watch.end()
    plain_torch.set_weights(network, weights)
    report("bare", data, watch, plain_torch.accuracy(network, data), ["torch"])


if __name__ == "__main__":
    main()
