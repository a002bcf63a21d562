"""What tests of several rooms share. No test is imported by another."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
