"""The network for Amazon reviews in the Clust-PSI-PFL paper: an embedding, flattened, a dense layer of 8 with
ReLU, and the output.

The paper leaves vocabulary and embedding dimension open: the vocabulary is the source's, 32 dimensions are
ours.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from fedcohort.models import MODELS, TextModel
from fedcohort.util.settings import at_least


@MODELS.register
@dataclass(frozen=True)
class EmbeddingDense(TextModel):
    """A vector per token, all of them into one small dense layer."""

    dimension: Annotated[int, at_least(1)] = 32  # of the vector of a token
    units: Annotated[int, at_least(1)] = 8  # of the hidden layer

    def build_text(self, length: int, classes: int, vocabulary: int) -> nn.Module:
        embedding = [nn.Embedding(vocabulary, self.dimension), nn.Flatten()]
        dense = [nn.Linear(length * self.dimension, self.units), nn.ReLU()]
        return nn.Sequential(*embedding, *dense, nn.Linear(self.units, classes))
