# Every target works as the first command on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
export PYTHONDONTWRITEBYTECODE :=  # else every process that a test starts compiles the library again

.PHONY: install demo test style types suite test-deploy fuzz mutants lint bench bench-peers bench-scale bench-all crosscheck docs examples studies clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fedcohort and its tools into $(VENV) (about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/fedcohort demo

lint: style types

style: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

test: style
	@$(MAKE) --no-print-directory -j 2 types suite  # mypy takes a core for half a minute

suite: $(READY)
	@$(BIN)/python -m pytest -n 3 --dist loadfile tests benchmarks

test-deploy: $(READY)
	@$(BIN)/python -m pytest -m deploy tests

fuzz: $(READY)
	@$(BIN)/python -m fuzz.run $(ARGS)

mutants: $(READY)
	@$(BIN)/python -m mutants.run $(ARGS)

bench: $(READY)
	@$(BIN)/fedcohort bench $(ARGS)

bench-peers: $(READY)
	@$(BIN)/python -m benchmarks.run_peers --engine pool $(ARGS)

bench-scale: $(READY)
	@$(BIN)/python -m benchmarks.run_scale $(ARGS)

# Everything in benchmarks/RESULTS.md, on a machine with nothing else to do (about an hour)
bench-all: bench-peers bench-scale
	@$(BIN)/python -m benchmarks.against 78869d2
	@$(BIN)/python -m benchmarks.ray_overhead
	@$(BIN)/python -m benchmarks.tables

crosscheck: $(READY)
	@$(BIN)/python -m crosschecks.run

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

examples: $(READY)
	@$(BIN)/python scripts/run_examples.py $(ARGS)

studies: $(READY)
	@$(BIN)/python -m studies.skew_metrics $(ARGS)
	@$(BIN)/python -m studies.number_of_groups $(ARGS)

clean:
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
