# `make demo` and `make test` do everything from a clean clone, with Python 3.11 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow reproduce-quick install bench format clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard src/contiformer/native/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/contiformer demo

test: install
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term
	$(BIN)/python -m coverage report --include='src/contiformer/paths/*,src/contiformer/nn/*' --fail-under=90

test-slow: install
	$(BIN)/python -m pytest -m slow -o addopts=-ra

reproduce-quick: install
	rm -rf build/reproduce-quick
	$(BIN)/contiformer reproduce quick --output build/reproduce-quick

bench: install
	$(BIN)/contiformer bench attention

format: install
	$(BIN)/ruff format src tests examples
	$(BIN)/ruff check --fix src tests examples

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
