"""Mistakes planted in a copy of the library, each of which a test must notice."""
