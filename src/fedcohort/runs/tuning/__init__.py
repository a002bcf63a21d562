"""The settings with which each method does best, looked for with the same budget for all."""
