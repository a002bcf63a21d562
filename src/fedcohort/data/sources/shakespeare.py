"""Shakespeare's plays, one client per speaking role: which character comes next?

The task of LEAF (Caldas et al., 2018, https://arxiv.org/abs/1812.01097), after McMahan et al. (2017), on
speeches that anybody may have cut from the plays: LEAF's own list of clients is another edition's.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register
from fedcohort.data.unpack import read_bytes
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least

FOLDERS = ("shakespeare",)
NAMES = {" ": "space", "\n": "end of line"}  # of classes that would be invisible
FILES = ("speeches.jsonl", "speeches.jsonl.gz")


@register
@dataclass(frozen=True)
class Shakespeare:
    """A file of speeches, a JSON object with ``play``, ``role`` and ``text`` on each line.

    Tokens are characters, numbered in the order of Unicode; an example is a window on all that a role says.
    """

    path: DataPath | None = None  # the folder, if not <root>/shakespeare
    length: Annotated[int, at_least(1)] = 80  # characters of an example
    every: Annotated[int, at_least(1)] = 80  # characters from one example to the next; LEAF: 1

    def load(self, where: Places) -> Dataset:
        found = where.at(self.path).find(FOLDERS, FILES)
        if found is None:
            raise UserError(f"{FILES[0]} is missing: put it into a folder {FOLDERS[0]} below the data root")
        said = {role: text for role, text in read_speeches(found).items() if len(text) > self.length}
        if not said:
            raise UserError(f"no role of {found} says more than {self.length} characters: lower 'length'")
        characters = sorted(set("".join(said.values())))
        points = np.array([ord(character) for character in characters])
        examples, owner = [], []
        for role, text in said.items():
            ids = np.searchsorted(points, np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32))
            windows = np.lib.stride_tricks.sliding_window_view(ids, self.length + 1)[:: self.every]
            examples.append(windows)
            owner += [role] * len(windows)
        rows = torch.from_numpy(np.concatenate(examples))
        story = {"source": "shakespeare", **vars(self), "vocabulary": len(characters)}
        x, y = rows[:, :-1].contiguous(), rows[:, -1].contiguous()
        names = tuple(NAMES.get(character, character) for character in characters)
        return Dataset(x, y, names, owner=np.array(owner), provenance=story, vocabulary=len(characters))


def read_speeches(path: Path) -> dict[str, str]:
    """All that each role says, in the order of the file, a speech a line."""
    said: dict[str, list[str]] = {}
    try:
        for line in read_bytes(path).decode("utf-8").splitlines():
            speech = json.loads(line)
            text = speech["text"].encode("utf-8").decode("utf-8")  # a text, and one that can be written
            said.setdefault(f"{speech['play']}: {speech['role']}", []).append(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is not a list of speeches ({error}): check the file") from error
    return {role: "\n".join(speeches) for role, speeches in said.items()}
