"""From a finished run to the folder of a model in use: whose model it is, its card, its files."""
