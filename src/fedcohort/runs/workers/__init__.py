"""Independent runs side by side: on the cores of this machine, or on the machines of a Ray cluster."""
