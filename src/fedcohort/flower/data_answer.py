"""What a client says of its data before training: what the method uses, as far as its policy allows."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.noise import tidied
from fedcohort.core.records import Memory
from fedcohort.core.roles.optional import Summarises
from fedcohort.core.schema import FACTS, count_fields, data_fields, moment_fields, summary_fields
from fedcohort.core.task import Task
from fedcohort.flower.client_store import ClientStore
from fedcohort.flower.fields import write_fields
from fedcohort.flower.ledger import OverspentError
from fedcohort.flower.messages import Payload
from fedcohort.flower.policy import Policy, refuse

log = logging.getLogger("fedcohort.flower")

WITHHELD = "they are not told (--privacy exact would tell them)"


class DataAnswer:
    """The answer of one client in one run, the only one of its task."""

    def __init__(
        self, method: Method, task: Task, store: ClientStore, policy: Policy, reading: Mapping[str, Any]
    ) -> None:
        self.method, self.task, self.store, self.policy, self.reading = method, task, store, policy, reading
        self.level = policy.level(method.privacy(task.privacy).counts)

    def answer(self) -> Payload:
        """Who it is; label counts and summaries only if the method uses them, and as the policy has it."""
        federation = self.task.data
        splits = federation.train, federation.validation, federation.test
        sizes, shape = [int(split.sizes[0]) for split in splits], list(federation.shape)
        facts = {"sizes": sizes, "shape": shape, "vocabulary": federation.vocabulary}
        told: dict[str, Mapping[str, Any]] = {FACTS: facts, "summaries": {}}
        fields = data_fields(len(shape))
        if self.method.uses & {"counts", "summary"}:
            words = self.policy.counts_in_words(self.level)
            log.info("%s asks for label counts: they are %s", self.method, words)
        if self.level != "withheld":
            if "counts" in self.method.uses:
                told["counts"] = {"counts": self._counts()}
                fields += count_fields(federation.num_classes)
            summaries = {part.name: self._summary(part) for part in self.method.summarising}
            told["summaries"] = summaries
            fields += summary_fields({name: table.shape for name, table in summaries.items()})
        if federation.moments is not None and self.reading.get("scale", "federated") == "federated":
            told["moments"] = self._moments(*federation.moments)
            fields += moment_fields(shape[:1]) if told["moments"] else ()
        names: dict[str, Any] = {"name": federation.clients[0], "classes": list(federation.classes)}
        return write_fields(fields, told).and_also(Payload(names, {}))

    def _moments(self, count: Tensor, mean: Tensor, spread: Tensor) -> Memory:
        """Of each column of the training data, for one scale of all clients. Nothing unless exact tables may
        be told: a column has no bounds, so no noise would hide a sample. Few numbers count as none."""
        exact = self.policy.level(self.task.privacy.counts) == "exact"
        log.info("the run scales by the means of columns: %s", "they are told" if exact else WITHHELD)
        if not exact:
            return {}
        size, few = self.task.data.client(0).size(), self.policy.min_samples
        known = (count[0] >= few) & (size >= few)
        told = {"number": count[0], "mean": mean[0], "spread": spread[0]}
        return {name: torch.where(known, value, 0.0) for name, value in told.items()}

    def _counts(self) -> Tensor:
        """Label counts of the training data. Those under noise are drawn for all data, because a server
        chooses the split, and scaled. Those of another column are another question."""
        federation = self.task.data
        if self.level == "exact":
            return federation.counts[0].double()
        splits = federation.train, federation.validation, federation.test
        counts = torch.stack([split.counts(federation.num_classes)[0] for split in splits]).sum(0)
        return self._noised("label counts", {"threshold", "bins", "label"}, federation.classes, counts)

    def _summary(self, part: Summarises) -> Tensor:
        """What a part counts of the examples, likewise."""
        federation, classes = self.task.data, self.task.data.num_classes
        if self.level == "exact":
            return part.summarise(*federation.train.examples(0), classes).double()
        filled = self.reading.get("missing") in ("mean", "median")
        as_is = self.reading.get("scale") == "none" and not filled
        if federation.provenance.get("data", {}).get("source") == "table" and not as_is:
            raise refuse(f"a summary for {part.name} with noise: columns are scaled by all of their values")
        splits = federation.train, federation.validation, federation.test
        x, y = map(torch.cat, zip(*(split.examples(0) for split in splits), strict=True))
        table = part.summarise(x, y, classes)
        cells = [str(number) for number in range(table.numel())]
        shape = "x".join(map(str, table.shape))
        what = f"{shape} summary of {part!r}"
        return self._noised(what, set(self.reading), cells, table.flatten()).view_as(table)

    def _noised(self, what: str, of: Collection[str], cells: Sequence[str], table: Tensor) -> Tensor:
        """A table as the ledger tells it, scaled to the training data, whose size is known. Data that are
        read with other options ``of`` the run are another question."""
        options = {key: value for key, value in sorted(self.reading.items()) if key in of}
        what = f"{what} {json.dumps(options)}" if options else what
        size = self.task.data.client(0).size()
        ledger = self.policy.ledger(self.store.ledger, self.method.privacy(self.task.privacy).epsilon)
        try:
            return tidied(torch.tensor(ledger.tell(what, cells, table.tolist())), size)
        except OverspentError as error:
            raise refuse(str(error)) from None
