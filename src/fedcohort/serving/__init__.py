"""A model in use: a folder of plain files, and what answers rows with it; no part of training is needed."""
