"""What every part of a method can say about itself, whichever role it has."""

from typing import ClassVar

from fedcohort.core.profile import Profile

# What a part may ask for beyond the model update, and what it means.
USES = {
    "counts": "label counts of each client, once before training",
    "losses": "the current model's loss on polled clients, before they are chosen",
    "loss": "the mean loss of the local steps, with the update",
    "trace": "the loss of every local step, with the update",
    "steps": "the number of local steps, with the update",
    "loss_before": "the sent model's loss on the client's training data, with the update",
    "outputs": "the trained model's mean class probabilities on its own training data, before the update",
    "summary": "what `summarise` counts of each client's examples, once before training",
    "validation": "validation data held out at each client",
    "cross_accuracy": "the accuracy of every cohort member's model on every other member's validation data",
}
PROBES = ("loss_before", "outputs")  # those of USES that a client computes beside its training


class Part:
    """What every part can say about itself."""

    name: ClassVar[str]  # set by @register: the name of the file
    pooled: ClassVar[bool] = False  # True: all data are moved to one place first (not federated learning)
    silent: ClassVar[bool] = False  # True: nothing is sent between clients and server

    def uses(self) -> frozenset[str]:
        """What it must be told beyond the model update; names from USES. With every update come its steps,
        its samples and their mean loss."""
        return frozenset()

    def server_bytes(self, profile: Profile) -> int:
        """The most memory it needs at the server, where that grows faster than the number of clients."""
        return 0

    def check(self, profile: Profile) -> None:
        """Raises UserError when this part cannot work on this federation."""

    def has_own(self, hook: str) -> bool:
        """Whether it does something else at a hook than its role does by default."""
        owner = next(cls for cls in type(self).__mro__ if hook in vars(cls))
        return not owner.__module__.startswith("fedcohort.core.roles.")
