"""Reviews of books, DVDs, electronics and kitchenware on Amazon: which product is it, or is it praised?

Blitzer, Dredze, Pereira: Biographies, Bollywood, Boom-boxes and Blenders (ACL 2007),
https://aclanthology.org/P07-1056, as one table of all labelled reviews.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register
from fedcohort.data.sources.text import Text
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least

FOLDERS = ("amazon_multidomain", "amazon")
FILES = ("reviews.csv.gz", "reviews.csv")
MEANING = {"0": "negative", "1": "positive"}


@register
@dataclass(frozen=True)
class Amazon:
    """A table with the columns ``domain``, ``label`` (1 is praise), ``text`` and ``reviewer_id``."""

    path: DataPath | None = None  # the folder, if not <root>/amazon_multidomain
    label: Literal["product", "sentiment"] = "product"
    owner: Literal["domain", "reviewer"] = "domain"  # who is a natural client
    words: Annotated[int, at_least(3)] = 10_000  # kinds of tokens, with padding and unknown words
    length: Annotated[int, at_least(1)] = 100  # tokens of a review: its last ones

    def load(self, where: Places) -> Dataset:
        found = where.at(self.path).find(FOLDERS, FILES)
        if found is None:
            raise UserError(f"{FILES[0]} is missing: put it into a folder {FOLDERS[0]} below the data root")
        label = "domain" if self.label == "product" else "label"
        owner = "domain" if self.owner == "domain" else "reviewer_id"
        data = Text(str(found), "text", label, owner, None, self.words, self.length).load(where)
        names = tuple(MEANING.get(name, name) for name in data.classes) if label == "label" else data.classes
        kept = {key: data.provenance[key] for key in ("vocabulary", "preparation")}
        return replace(data, classes=names, provenance={"source": "amazon", **vars(self), **kept})
