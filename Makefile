# `make test` on a fresh machine with Python 3.11 and pip sets up everything and runs the tests.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# One torch thread per worker: the tests run in several processes.
RUN    := OMP_NUM_THREADS=1 $(BIN)/python

.PHONY: setup test test-slow check format benchmarks clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: setup
	$(RUN) -m pytest --numprocesses 2 -m "not slow"

test-slow: setup
	$(RUN) -m pytest --numprocesses 2 -m slow

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: setup
	$(BIN)/python benchmarks/stacking.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
