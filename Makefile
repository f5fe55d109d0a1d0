# Every target does its own set-up: each depends on a stamp of the virtual environment, of which
# there are two: what runs Muster (a demo, a server), and what developers use on top of it.

# The interpreter that virtual environments are made of, also when one of them is on the path: the
# environment made here has no pip of its own.
ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell python3 -c 'import os, sys; \
  base = os.path.join(sys.base_prefix, "bin", "python3"); \
  print(base if os.path.exists(base) else sys.executable)' 2>/dev/null || echo python3)
endif
VENV    := .venv
BIN     := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP   := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv check test test-slow test-browser test-worlds test-planted test-cluster cluster-up cluster-down bench \
  bench-cluster demo up docs crds format lock clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv from the lock files, with the project installed in place.

# A stamp is written last, so an installation that was interrupted is done again. A working
# environment is kept: making it anew with another Python would mix the two (`make clean` first).
# The environment gets no pip of its own: Debian leaves out what would put one there, and the
# machine's pip can install into it from outside. Only wheels are taken: building a source package
# would fetch build tools that nobody pinned.
PIP     := $(PYTHON) -m pip --python $(VENV) --disable-pip-version-check
INSTALL := $(PIP) install --require-hashes --only-binary :all:

$(RUNTIME): requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "muster needs Python 3.11 or newer; name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || \
	  { echo "pip is missing; on Debian: apt-get install python3-pip" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@echo "installing what Muster needs to run into $(VENV), once"
	@$(INSTALL) -r requirements.lock -r requirements-build.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(STAMP): $(RUNTIME) requirements-dev.lock
	@echo "installing what developers need into $(VENV), once"
	@$(INSTALL) -r requirements-dev.lock
	@touch $@

check: $(STAMP) ## Lint, formatting, import rules and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# On every core up to eight; whoever is done helps the others.
ON_ALL_CORES := -n auto --maxprocesses 8 --dist worksteal

test: $(STAMP) ## The tests that need nothing but this machine, quick ones only.
	$(BIN)/pytest -m "not slow and not cluster" $(ON_ALL_CORES)

test-slow: $(STAMP) ## The long scenarios and properties.
	$(BIN)/pytest -m "slow and not cluster" $(ON_ALL_CORES)

test-browser: $(STAMP) ## Everything about the dashboard, in Debian's Chromium.
	$(BIN)/pytest -m "not cluster" tests/api/test_dashboard.py tests/api/test_dashboard_client.py \
	  tests/api/test_dashboard_studies.py

test-worlds: $(STAMP) ## Of those all in virtual time: thousands of worlds, forks, logs decided again.
	$(BIN)/pytest -m "slow and not cluster" $(ON_ALL_CORES) tests/scenarios/test_scenarios.py \
	  tests/scenarios/test_wide_worlds.py tests/incidents

test-planted: $(STAMP) ## Plants known bugs in a copy and sees that the tests notice.
	$(BIN)/python -m tests.planted

# Building is a step of its own, so that no test is blamed for the time it takes.
test-cluster: $(STAMP) ## On a real Kubernetes: the one in KUBECONFIG, or one built and started here.
	@[ -n "$$KUBECONFIG" ] || $(BIN)/python -m deploy.testcluster build || true
	$(BIN)/pytest -m cluster -rs --durations=10 tests/cluster

cluster-up: $(STAMP) ## Start the test cluster and say how to use it (needs root).
	$(BIN)/python -m deploy.testcluster up

cluster-down: $(STAMP) ## Stop the test cluster.
	$(BIN)/python -m deploy.testcluster down

bench: $(STAMP) ## Measure, against named baselines; a table, and bench/results.json.
	$(BIN)/python -m bench.run

bench-cluster: $(STAMP) ## Measure on a real API server; a table, and bench/cluster.json.
	$(BIN)/python -m bench.cluster.run

demo: $(RUNTIME) ## A guided tour on a simulated cluster.
	$(BIN)/python examples/demo.py

up: $(RUNTIME) ## Start the control plane with everything embedded.
	$(BIN)/muster up

docs: $(STAMP) ## Make docs/states.md, docs/kinds.md and docs/whatif.md again from the code.
	$(BIN)/python docs/draw_states.py
	$(BIN)/python docs/run_commands.py docs/incidents.md
	$(BIN)/python docs/draw_kinds.py
	$(BIN)/python docs/draw_whatif.py

crds: $(STAMP) ## Make deploy/crds again from the kinds.
	$(BIN)/muster crds --out deploy/crds

format: $(STAMP) ## Format the code and sort its imports.
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

# Universal: one file for every platform and Python; the hashes are those of all the wheels.
# The dev lock is held to the versions of the run-time lock, so both always agree; the build lock is
# what builds the package in the container image.
# Versions already locked stay; `make lock UPGRADE=--upgrade` moves them.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock" $(UPGRADE)

lock: $(STAMP) ## Pin the dependencies of pyproject.toml, with hashes (UPGRADE=--upgrade to move them).
	$(COMPILE) pyproject.toml --output-file requirements.lock
	$(COMPILE) pyproject.toml --group dev --constraints requirements.lock --output-file requirements-dev.lock
	@echo hatchling | $(COMPILE) - --constraints requirements-dev.lock --output-file requirements-build.lock
	@$(MAKE) --no-print-directory venv

clean: ## Remove the virtual environment, caches and build results.
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
