"""``python -m fedcohort`` is the command line."""

from fedcohort.cli.app import main

main()
