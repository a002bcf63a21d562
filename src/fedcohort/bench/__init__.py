"""``fedcohort bench``: how fast this machine trains, beside a bare PyTorch loop.

:mod:`.jobs` and :mod:`.plain_torch` need NumPy and PyTorch only, so that the benchmarks against other
frameworks can use them in environments without fedcohort.
"""
