"""A pool of examples, counted by class, from which clients draw one after the other without replacement."""

import numpy as np


class Stock:
    """What is left of each class. Drawing changes it: no example is given twice."""

    def __init__(self, labels: np.ndarray, rng: np.random.Generator) -> None:
        self.left = np.bincount(labels)
        self.prior = self.left / self.left.sum()
        self.rng = rng

    def draw(self, alpha: float, size: int) -> np.ndarray:
        """Counts by class of one client: q ~ Dir(alpha * prior), then ``size`` draws from q.

        With ``alpha`` 0 the client holds one class only, with fewer examples if no class has ``size`` left.
        """
        if alpha == 0:
            return self._single(size)
        return self.take(self.rng.dirichlet(alpha * self.prior), size)

    def take(self, shares: np.ndarray, size: int) -> np.ndarray:
        """``size`` draws from ``shares``; what an exhausted class cannot give is drawn from the others."""
        got = np.zeros_like(self.left)
        while (missing := size - int(got.sum())) > 0 and self.left.any():
            open_ = shares * (self.left > 0)
            if open_.sum() <= 0:  # all of the client's classes are gone: it takes what there is
                open_ = self.left.astype(float)
            drawn = np.minimum(self.rng.multinomial(missing, open_ / open_.sum()), self.left)
            got += drawn
            self.left = self.left - drawn
        return got

    def _single(self, size: int) -> np.ndarray:
        enough = np.where(self.left >= size, self.left, 0)
        if enough.any():
            label = int(self.rng.choice(len(enough), p=enough / enough.sum()))
        else:
            label = int(self.left.argmax())
        got = np.zeros_like(self.left)
        got[label] = min(size, int(self.left[label]))
        self.left = self.left - got
        return got
