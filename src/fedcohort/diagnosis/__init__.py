"""Measure label skew from label counts: what it is, who belongs with whom, what to do."""

from fedcohort.diagnosis.diagnosis import Diagnosis, diagnose
from fedcohort.diagnosis.read import Counts, read_counts

__all__ = ["Counts", "Diagnosis", "diagnose", "read_counts"]
