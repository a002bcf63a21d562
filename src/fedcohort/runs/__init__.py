"""From an experiment file to results on disk, and back."""
