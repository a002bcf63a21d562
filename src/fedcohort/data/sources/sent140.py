"""Sentiment140: tweets that are negative or positive, labelled by their emoticons.

Go, Bhayani, Huang: Twitter Sentiment Classification using Distant Supervision (2009).
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from fedcohort.data.dataset import Dataset
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.preparation import Preparation
from fedcohort.data.sources import register
from fedcohort.data.texts import RESERVED, tokenise
from fedcohort.data.unpack import read_bytes
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least

FOLDERS = ("sent140", "sentiment140")
TRAIN = ("training.1600000.processed.noemoticon.csv", "sent140_100k.csv.gz")
TEST = ("testdata.manual.2009.06.14.csv", "sent140_manual_test.csv.gz")
MEANING = {"0": 0, "4": 1}  # of the label column; 2 is neutral, which only the test tweets know
HOME = "https://help.sentiment140.com"


class Tweets(NamedTuple):
    text: list[str]
    label: np.ndarray
    user: np.ndarray | None


@register
@dataclass(frozen=True)
class Sent140:
    """The official files, whose users are natural clients, or tables with the columns ``label`` and ``text``.

    Neutral tweets of the test set are left out, for no training tweet is neutral.
    """

    path: DataPath | None = None  # the folder, if not <root>/sent140
    words: Annotated[int, at_least(3)] = 10_000  # kinds of tokens, with padding and unknown words
    length: Annotated[int, at_least(1)] = 30  # tokens of a tweet: its last ones

    def load(self, where: Places) -> Dataset:
        where = where.at(self.path)
        train, test = where.find(FOLDERS, TRAIN), where.find(FOLDERS, TEST)
        if train is None:
            raise UserError(f"{TRAIN[0]} is missing: put it into a folder {FOLDERS[0]} (from {HOME})")
        tweets, asked = read_tweets(train), None if test is None else read_tweets(test)
        test_text, test_label = (None, None) if asked is None else (asked.text, asked.label)
        x, test_x, words = tokenise(tweets.text, test_text, self.words, self.length)
        y, test_y, names = encode_labels(tweets.label, test_label, ("negative", "positive"))
        kinds, read = len(words) + RESERVED, Preparation((), "text", words, self.length)
        story = {"source": "sent140", **vars(self), "file": train.name, "vocabulary": kinds}
        story["preparation"] = read
        # The users of the test tweets are others than those who train, so they own nothing here.
        return Dataset(x, y, names, test_x, test_y, tweets.user, None, story, kinds)


def read_tweets(path: Path) -> Tweets:
    """All tweets but the neutral ones; only the official layout (six columns, no header) knows the user."""
    text = read_bytes(path).decode("utf-8", errors="replace")
    try:
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise UserError(f"{path} is not a table ({error}): fetch it again") from error
    official = bool(rows) and len(rows[0]) == 6
    if not official and (not rows or rows[0] != ["label", "text"]):
        raise UserError(f"{path} is neither the official file nor a table of label and text: fetch it again")
    width = len(rows[0])
    rows = [row for row in (rows if official else rows[1:]) if len(row) == width and row[0] in MEANING]
    label = np.array([MEANING[row[0]] for row in rows], dtype=np.int64)
    return Tweets([row[-1] for row in rows], label, np.array([row[4] for row in rows]) if official else None)
