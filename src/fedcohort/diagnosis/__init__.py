"""Measure label skew from label counts: what it is, who belongs with whom, what to do."""

from fedcohort.diagnosis.read import Counts, read_counts
from fedcohort.diagnosis.report import Diagnosis, diagnose

__all__ = ["Counts", "Diagnosis", "diagnose", "read_counts"]
