"""Texts into rows of token ids, for networks that begin with an embedding.

A row has as many ids as wanted: the last words of a long text, and padding before a short one, so that a
network that reads from left to right ends with the text's own last word.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedcohort.util.errors import UserError

PADDING, UNKNOWN, RESERVED = 0, 1, 2  # ids of no word; how many there are
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation; ``can't`` is one word."""
    return WORD.findall(text.lower().replace("’", "'"))


def tokenise(
    train: Sequence[str], test: Sequence[str] | None, words: int, length: int
) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Both parts as token ids in the training part's vocabulary, and its words."""
    vocabulary = learn_vocabulary(train, words)
    x = encode_texts(train, vocabulary, length)
    test_x = None if test is None else encode_texts(test, vocabulary, length)
    return x, test_x, tuple(vocabulary)


def learn_vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """The ids of the commonest words, ``size`` in all with those of no word; ties go by the alphabet."""
    seen = Counter(word for text in texts for word in words_of(text))
    commonest = sorted(seen, key=lambda word: (-seen[word], word))[: size - RESERVED]
    if not commonest:
        raise UserError("the texts hold no words: check the text column")
    return {word: number for number, word in enumerate(commonest, start=RESERVED)}


def encode_texts(texts: Sequence[str], vocabulary: dict[str, int], length: int) -> Tensor:
    """``[n, length]`` ids of each text's last words."""
    rows = []
    for text in texts:
        ids = [vocabulary.get(word, UNKNOWN) for word in words_of(text)[-length:]]
        rows.append([PADDING] * (length - len(ids)) + ids)
    return torch.tensor(rows, dtype=torch.int64).view(len(rows), length)
