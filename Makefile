# `make demo` and `make test` do everything from a clean clone, with make and Python 3.11 or later.
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3; do $$p -c '$(RECENT)' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
CODE := src reproduction benchmarks tests examples conftest.py setup.py

.PHONY: demo test test-slow test-engines docs reproduce-quick install bench format clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml setup.py constraints.txt $(wildcard src/contiformer/native/*.[ch] src/contiformer/native/rivals/*.[ch])
	@test -x $(BIN)/python || $(or $(PYTHON),false) -c '$(RECENT)' || \
	    { echo "contiformer needs Python 3.11 or later: install it, or run make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/contiformer demo

test: install
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term
	$(BIN)/python -m coverage report --include='src/contiformer/paths/*,src/contiformer/nn/*' --fail-under=90

test-slow: install
	$(BIN)/python -m pytest -m slow -o addopts=-ra

# Spark and Ray in local mode; installs 600 MB into .venv, and Spark needs Java 17 or later
test-engines: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,ray]'
	$(BIN)/python -m pytest tests/integrations/test_spark.py tests/integrations/test_ray.py

docs: install
	$(BIN)/python -m mkdocs build
	@echo "open build/site/index.html"

reproduce-quick: install
	rm -rf build/reproduce-quick
	$(BIN)/python -m reproduction quick --output build/reproduce-quick

bench: install
	$(BIN)/python -m benchmarks attention

format: install
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
