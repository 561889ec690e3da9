# Set-up and checks. Needs make and Python 3.11 or newer; everything else is installed into $(VENV) on first use.
#   make demo            analyze the bundled log
#   make test            run the tests
#   make help            everything else

.DEFAULT_GOAL := help
.PHONY: help setup demo test engines lint format types imports spell docs docs-check wheel check bench clean

# An empty PYTHON means: the first interpreter on the path that is new enough.
PYTHON ?=
VENV ?= .venv
ARGS ?=

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
find_python = $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	if $$p -c '$(NEW_ENOUGH)' 2>/dev/null; then echo $$p; break; fi; done)
PY := $(or $(PYTHON),$(find_python))
PY_VERSION := $(shell $(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
PIP := $(RUN) pip install --quiet --disable-pip-version-check
READY := $(VENV)/.ready-$(PY_VERSION)
INSTALLED := $(VENV)/.installed-$(PY_VERSION)
TESTABLE := $(VENV)/.testable-$(PY_VERSION)
CHECKABLE := $(VENV)/.checkable-$(PY_VERSION)
BENCHABLE := .bench/.ready-$(PY_VERSION)

help:
	@echo 'make demo     analyze the bundled log (sets itself up)'
	@echo 'make test     run the tests; ARGS="-k name" is passed to pytest'
	@echo 'make engines  hold verify against real engines, installed without a GPU (minutes, 5 GB)'
	@echo 'make check    lint, types, imports, spelling and docs, as CI does'
	@echo 'make format   rewrite the sources in the house style'
	@echo 'make docs     write the generated pages and README blocks again'
	@echo 'make wheel    build dist/'
	@echo 'make bench    compare speed and memory with the peers (minutes; downloads kvlint)'
	@echo 'make clean    remove what these commands made'
	@echo 'PYTHON=python3.12 chooses the interpreter, VENV=folder the environment.'

# The stamps carry the version of the interpreter: another PYTHON makes another environment in the same folder.
$(READY):
	@test -n "$(PY_VERSION)" || { echo 'No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python' >&2; exit 1; }
	@$(PY) -c '$(NEW_ENOUGH)' || { echo '$(PY) is Python $(PY_VERSION); prefixlint needs 3.11 or newer. Name another: make PYTHON=python3.12' >&2; exit 1; }
	@if [ -x $(BIN)/python ] && $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(PY_VERSION)")' 2>/dev/null; \
	then :; else rm -rf $(VENV); \
	$(PY) -m venv $(VENV) || { echo 'python -m venv failed. On Debian and Ubuntu: apt install python3-venv' >&2; rm -rf $(VENV); exit 1; }; fi
	@$(RUN) pip --version >/dev/null 2>&1 || $(RUN) ensurepip --upgrade >/dev/null
	@touch $@

$(INSTALLED): pyproject.toml $(READY)
	@echo 'Installing prefixlint into $(VENV) …' >&2
	@$(PIP) --editable .
	@touch $@

$(TESTABLE): $(INSTALLED)
	@echo 'Installing what the tests need …' >&2
	@$(PIP) --editable '.[test,oracle]'
	@touch $@

$(CHECKABLE): $(TESTABLE)
	@echo 'Installing what the checks need …' >&2
	@$(PIP) --editable '.[dev]'
	@touch $@

$(BENCHABLE): tests/benchmarks/peers.txt $(INSTALLED)
	@echo 'Installing the peers into .bench/kvlint …' >&2
	@rm -rf .bench/kvlint && $(PY) -m venv .bench/kvlint
	@.bench/kvlint/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/benchmarks/peers.txt
	@touch $@

setup: $(CHECKABLE)

# HF_HUB_OFFLINE: the demo needs no network, and this proves it.
demo: $(INSTALLED)
	@HF_HUB_OFFLINE=1 $(BIN)/prefixlint analyze fixtures/logs/demo.jsonl $(ARGS)

test: $(TESTABLE)
	@$(RUN) pytest $(ARGS)

engines: $(TESTABLE)
	@PYTHON=$(BIN)/python tests/engines/run.sh $(ARGS)

lint: $(CHECKABLE)
	$(RUN) ruff check .
	$(RUN) ruff format --check .

format: $(CHECKABLE)
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

types: $(CHECKABLE)
	$(RUN) mypy
	$(RUN) mypy docs/generate.py fixtures/logs/make_demo.py
	MYPYPATH=tests/benchmarks $(RUN) mypy --explicit-package-bases tests/benchmarks/*.py

imports: $(CHECKABLE)
	$(BIN)/lint-imports

spell: $(CHECKABLE)
	$(BIN)/codespell

docs: $(INSTALLED)
	$(BIN)/python docs/generate.py

docs-check: $(INSTALLED)
	$(BIN)/python fixtures/logs/make_demo.py --check
	$(BIN)/python docs/generate.py --check

wheel: $(CHECKABLE)
	@rm -rf dist
	$(RUN) build --outdir dist

check: lint types imports spell docs-check

bench: $(BENCHABLE)
	$(BIN)/python tests/benchmarks/analyze_vs_peers.py $(ARGS)

clean:
	rm -rf $(VENV) .bench dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage coverage.xml
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
