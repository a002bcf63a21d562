"""Which method to try on a federation, from a table of our own runs on others."""

from fedcohort.runs.advice.evidence import Measured
from fedcohort.runs.advice.prediction import Advice, ExpectedGain, advise

__all__ = ["Advice", "ExpectedGain", "Measured", "advise"]
