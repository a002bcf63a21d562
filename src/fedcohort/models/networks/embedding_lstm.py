"""The network for Sent140 in the Clust-PSI-PFL paper: an embedding, dropout of 0.5, an LSTM of 10 units with
dropout and recurrent dropout of 0.2, and a dense output.

PyTorch's LSTM knows no recurrent dropout, so the recurrence is written out. As in Keras, which the authors
use, a text loses the same inputs and the same memory at each of its tokens. The paper leaves vocabulary and
embedding dimension open: the vocabulary is the source's, 32 dimensions are ours.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from fedcohort.models import MODELS, TextModel
from fedcohort.util.settings import at_least, below

Share = Annotated[float, at_least(0), below(1)]


@MODELS.register
@dataclass(frozen=True)
class EmbeddingLSTM(TextModel):
    """A vector per token, read by a small LSTM from the first to the last."""

    dimension: Annotated[int, at_least(1)] = 32  # of the vector of a token
    units: Annotated[int, at_least(1)] = 10  # of the LSTM
    dropout: Share = 0.5  # of the vectors' entries
    input_dropout: Share = 0.2  # of the LSTM's inputs, the same at each token
    recurrent_dropout: Share = 0.2  # of the LSTM's memory, the same at each token

    def build_text(self, length: int, classes: int, vocabulary: int) -> nn.Module:
        return nn.Sequential(
            nn.Embedding(vocabulary, self.dimension),
            nn.Dropout(self.dropout),
            LSTM(self.dimension, self.units, self.input_dropout, self.recurrent_dropout),
            nn.Linear(self.units, classes),
        )


class LSTM(nn.Module):
    """``[n, length, inputs]`` to what it remembers in the end, ``[n, units]``."""

    def __init__(self, inputs: int, units: int, input_dropout: float, recurrent_dropout: float) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, units)
        self.drop_input, self.drop_memory = nn.Dropout(input_dropout), nn.Dropout(recurrent_dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        keep_input = self.drop_input(torch.ones_like(x[:, 0]))
        keep_memory = self.drop_memory(torch.ones_like(hidden))
        for token in x.unbind(1):
            hidden, state = self.cell(token * keep_input, (hidden * keep_memory, state))
        return hidden
