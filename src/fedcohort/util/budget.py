"""How many trials tuning gives to each that is tuned; light, because ``fedcohort tune --help`` tells it."""

EACH = 9  # unless somebody says
MOST = 10_000  # ... and whoever says
