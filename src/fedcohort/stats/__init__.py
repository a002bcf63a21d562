"""Arrays in, numbers out: distances, groups and metrics that methods, diagnosis and results share."""
