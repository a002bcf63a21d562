"""For programs instead of commands: experiments that run themselves, and a classifier for scikit-learn."""
