"""How many trials tuning gives a method; light, because ``fedcohort tune --help`` tells it."""

EACH = 9  # trials of a method, unless somebody says
MOST = 10_000  # ... and whoever says
