# Two commands for a newcomer: `make demo` and `make test`. Both do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint javascript unit soak bench performance clean help

help:
	@echo "make demo         four real classifiers on real photographs, clean and corrupted"
	@echo "make test         lint, types and the whole test suite"
	@echo "make bench        all benchmarks, and docs/performance.md from them"
	@echo "make soak         the long tests"

demo: $(VENV)/.demo
	$(BIN)/shiftbench demo

test: lint unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory javascript

# Types and lint of the JavaScript in the report and the annotation pages; visibly skipped where npm does not exist.
javascript:
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory node_modules/.package-lock.json && npm run --silent check; \
	else echo "SKIPPED: the JavaScript checks need npm (Node.js 20 or newer)"; fi

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --silent
	@touch $@

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not soak"

soak: $(VENV)/.dev
	$(BIN)/pytest -m soak

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

performance: $(VENV)/.dev
	$(BIN)/python -m benchmarks --page-only

$(VENV)/.base: scripts/prepare
	bash scripts/prepare $(PYTHON) $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.base pyproject.toml constraints.txt
	@echo "Installing shiftbench with what the demo needs (about two minutes) ..."
	$(PIP) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.base scripts/debian pyproject.toml constraints.txt
	@echo "Installing shiftbench with everything its tests need (about three minutes) ..."
	bash scripts/debian 'chromium=chromium' '/usr/lib/postgresql/*/bin/initdb=postgresql'
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) demo-workspace .mypy_cache .ruff_cache
