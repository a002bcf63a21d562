"""Which method to try on a federation, from a table of our own runs on others."""

from fedcohort.advice.advise import Advice, Expected, advise
from fedcohort.advice.evidence import Evidence

__all__ = ["Advice", "Evidence", "Expected", "advise"]
