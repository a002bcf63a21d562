"""The contract every method keeps, as checks anyone can run on theirs.

>>> from fedcohort.testing import check_method
>>> check_method("fedprox(mu=0.1)")

``CHECKS`` is the list. The project runs all of them on every registered method, so a new file is tested
before its author writes a test.
"""

from fedcohort.testing.checks import CHECKS, check_method
from fedcohort.testing.tiny import accuracy, assert_same, play, tiny_task

__all__ = ["CHECKS", "accuracy", "assert_same", "check_method", "play", "tiny_task"]
