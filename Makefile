.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test test-lowest torture demo reproduce bench bench-quick docs lint format lock clean

PYTHON ?= python3

# What the caller's shell happens to set must not change what is installed or tested.
unexport MYPYPATH PYTHONHOME PYTHONPATH PYTHONWARNINGS VIRTUAL_ENV
unexport PIP_CONSTRAINT PIP_PREFIX PIP_REQUIRE_HASHES PIP_REQUIRE_VIRTUALENV PIP_TARGET
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_USER := 0
# The matrices are small, and tests and experiments use the cores themselves.
export OPENBLAS_NUM_THREADS ?= 1

RUN := .venv/bin/python -m
PIP := .venv/bin/python -m pip install -qq

help: ## List these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "Another Python than python3: make setup PYTHON=python3.12 (after make clean)."

setup: .venv/.ready ## Install everything into .venv (the other commands do it when needed)

# The stamp is written last, so a setup that was interrupted starts over.
.venv/.ready: dev.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "headstart needs Python 3.11 or newer, which '$(PYTHON)' is not: try again with PYTHON=python3.11." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "headstart needs Python's venv module: on Debian run 'apt install python3-venv' and try again." >&2; exit 1; }
	@echo "Setting up .venv (once, about a minute) …"
	@rm -rf .venv
	@"$(PYTHON)" -m venv .venv
	@$(PIP) --require-hashes -r dev.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# worksteal: tests of one file mostly run in one process, which makes their shared fixtures once.
test: lint ## Check style, types and layers, then run every test and documented example
	@echo "Tests and examples (pytest) …"
	@$(RUN) pytest -q -n auto --maxprocesses 4 --dist worksteal

test-lowest: .venv-lowest/.ready ## Run the core of the tests on the lowest versions that are allowed
	@echo "Core tests on the lowest versions (pytest) …"
	@.venv-lowest/bin/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal -p no:cacheprovider \
	  -W ignore::DeprecationWarning $(addprefix --deselect=,$(NOT_LOWEST)) $(LOWEST)

# Every part that a dependency has a say in: numbers, files, the command line, logs, figures.
LOWEST := $(addprefix tests/,test_cli.py test_cli_logs.py bandit/test_bandit.py bandit/test_files.py \
  features/test_conversion.py model rules storage/test_archive.py fleet/test_columns.py \
  fleet/test_fit.py fleet/test_logs.py fleet/test_page.py lab/test_figures.py lab/test_policies.py \
  lab/test_report.py lab/test_spectrum.py worlds/test_synthetic.py)
# How fast help comes is not a matter of versions; the other writes a file that old pyarrow cannot.
NOT_LOWEST := tests/test_cli.py::test_help_comes_at_once \
  tests/fleet/test_logs.py::test_fixed_lists_with_a_missing_one

.venv-lowest/.ready: pyproject.toml
	@echo "Setting up .venv-lowest (about a minute) …"
	@rm -rf .venv-lowest
	@"$(PYTHON)" -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip install -qq 'uv>=0.9,<1'
	@.venv-lowest/bin/uv pip install -q --no-config --cache-dir .venv-lowest/cache \
	  --python .venv-lowest/bin/python --resolution lowest-direct -e '.[lab,fleet]' --group test
	@rm -rf .venv-lowest/cache
	@touch $@

lint: .venv/.ready ## Check style, types and layers
	@echo "Style (ruff check) …"
	@$(RUN) ruff check -q --output-format=concise .
	@echo "Layout (ruff format) …"
	@$(RUN) ruff format -q --check . || { echo "Run 'make format' to fix this." >&2; exit 1; }
	@echo "Types (mypy) …"
	@$(RUN) mypy
	@echo "Layers (import-linter) …"
	@.venv/bin/lint-imports --no-logo

format: .venv/.ready ## Put the code into the house style
	@$(RUN) ruff check -q --fix-only .
	@$(RUN) ruff format .

torture: .venv/.ready ## Attack the library for some minutes (not part of test); options in ARGS="--minutes 10"
	@.venv/bin/python tools/torture $(ARGS)

demo: .venv/.ready ## The paper's main comparison, small, in under a minute
	@.venv/bin/headstart reproduce synthetic --quick --out results/demo

reproduce: .venv/.ready ## The whole paper at full size: figures, claims, one report
	@.venv/bin/headstart reproduce all --out results/reproduction

bench: .venv/.ready ## Compare speed and memory with other libraries (about half an hour)
	@.venv/bin/python benchmarks/run.py

bench-quick: .venv/.ready ## The same with one size and a few of them, in under 3 minutes
	@.venv/bin/python benchmarks/run.py --quick

docs: .venv/.ready ## Build the documentation
	@$(RUN) sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

lock: ## Bring every version in dev.lock up to date
	@rm -rf .venv-lock
	@"$(PYTHON)" -m venv .venv-lock
	@.venv-lock/bin/python -m pip install -qq 'uv>=0.9,<1'
	@.venv-lock/bin/uv pip compile -q --no-config --cache-dir .venv-lock/cache --python .venv-lock/bin/python \
	  --universal --python-version 3.11 --fork-strategy fewest --upgrade --generate-hashes \
	  --custom-compile-command "make lock" --extra lab --group dev -o dev.lock pyproject.toml >/dev/null
	@rm -rf .venv-lock

clean: ## Remove all that these commands made
	@rm -rf .venv .venv-lock .venv-lowest .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@rm -rf build dist docs/_build results benchmarks/.environments benchmarks/results
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
