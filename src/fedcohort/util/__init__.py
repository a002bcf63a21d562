"""What knows nothing of federated learning: settings, registries, files, names, the machine."""
