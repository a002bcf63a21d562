"""Where client work runs: each engine is a :class:`fedcohort.core.engine.Engine`, and gives what the
reference loop gives."""
