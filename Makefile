# Every target works as the first command on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: install demo test lint bench bench-peers crosscheck clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fedcohort and its tools into $(VENV) (about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/fedcohort demo

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: lint
	@$(BIN)/python -m pytest -n 2 tests benchmarks

bench: $(READY)
	@$(BIN)/fedcohort bench $(ARGS)

bench-peers: $(READY)
	@$(BIN)/python -m benchmarks.run_peers --engine pool $(ARGS)

crosscheck: $(READY)
	@$(BIN)/python -m crosschecks.run

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
