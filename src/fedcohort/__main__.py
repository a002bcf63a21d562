"""``python -m fedcohort`` is the command line."""

from fedcohort.cli import main

main()
