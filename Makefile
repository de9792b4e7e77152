# `make demo` and `make test` do all of their own set-up; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2

.PHONY: demo test lint format docs test-backends benchmark clean

demo: $(VENV)/.demo
	$(BIN)/python -m attention_apps demo --terminal

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

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
	rm -rf $(VENV) build dist site *.egg-info
