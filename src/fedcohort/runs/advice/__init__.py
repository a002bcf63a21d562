"""Which method to try on a federation, from a table of our own runs on others."""

from fedcohort.runs.advice.evidence import Evidence
from fedcohort.runs.advice.prediction import Advice, Expected, advise

__all__ = ["Advice", "Evidence", "Expected", "advise"]
