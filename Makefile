# Every target sets up its own environment in .venv (override with VENV=...).
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || echo python3)
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-all lint clean

$(VENV)/.installed: setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[test]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/torq demo

lint: $(VENV)/.installed
	$(BIN)/mypy torq_byoc
	$(BIN)/ruff check torq_byoc tests benchmarks examples setup.py
	$(BIN)/ruff format --check torq_byoc tests benchmarks examples setup.py

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 -q -m "not slow" tests

test-all: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 -q tests

clean:
	rm -rf $(VENV) build dist *.egg-info
