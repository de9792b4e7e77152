# Each target installs what it needs into .venv; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
# What `make quick` runs: the parts that most others rely on, without the slow tests.
QUICK := tests/data tests/decoding tests/layers tests/metrics tests/models tests/plots tests/preprocessing tests/test_*.py

.PHONY: demo quick test test-all coverage tutorials lint format docs test-backends benchmark clean

demo: $(VENV)/.demo
	$(BIN)/python -m attention_apps demo --terminal

# The loop while working: under two minutes on two cores.
quick: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(QUICK)

# Everything but long fuzzing and the tutorials: under twelve minutes on two cores.
test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(WORKERS)

test-all: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(WORKERS) --fuzz-cases 10000 --tutorials

# What the tests reach: a table, and pages in build/coverage.
coverage: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term --cov-report=html

# Runs the notebooks of docs/tutorials again and stores their outputs.
tutorials: $(VENV)/.test
	$(BIN)/python -m tests.tutorials

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages of docs/ and the API reference, in site/.
docs: $(VENV)/.test
	$(BIN)/python -m mkdocs build --strict

# The layers are written with keras.ops: the same tests on another backend.
test-backends: $(VENV)/.test
	$(PIP) -e ".[backends]"
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n $(WORKERS) tests/layers

benchmark: $(VENV)/.test
	$(PIP) "torch==2.13.0"
	$(BIN)/python benchmarks/attention_layers.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: setup.cfg | $(VENV)/bin/python
	$(PIP) -e ".[demo]"
	touch $@

$(VENV)/.test: setup.cfg | $(VENV)/bin/python
	$(PIP) -e ".[test,docs]"
	touch $@

clean:
	rm -rf $(VENV) build dist site .coverage *.egg-info
