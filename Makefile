# Two commands for a newcomer: `make demo` and `make test`. Both do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What some tests need besides Python packages; without it they are skipped, and named at the end of the run.
SYSTEM := 'chromium|chromium-browser|google-chrome=chromium' 'initdb|/usr/lib/postgresql/*/bin/initdb=postgresql' \
    '/usr/share/wordnet/data.noun=wordnet-base'
# What the soak needs besides.
SOAK_SYSTEM := 'slurmctld=slurm-wlm'
# For example: make unit PYTEST_OPTIONS="tests/shifts -x"
PYTEST_OPTIONS ?=
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# For example: make environments ENVIRONMENTS_OPTIONS="--python 3.12"
ENVIRONMENTS_OPTIONS ?=

.PHONY: demo test lint javascript unit coverage mutants fuzz environments fresh soak docs bench performance clean help

help:
	@echo "make demo         four real classifiers on real photographs, clean and corrupted"
	@echo "make test         lint, types, the whole test suite, and the README's commands in a fresh environment"
	@echo "make bench        all benchmarks, and docs/performance.md from them"
	@echo "make soak         the long tests, and docs/reliability.md from them; then make environments"
	@echo "make coverage     the test suite, and which lines and branches of the core it does not run"
	@echo "make mutants      break the product in many places, and list those that no test notices"
	@echo "make fuzz         the kernels and the image decoders' callers under libFuzzer, sanitizers on"
	@echo "make environments the documented commands on every Python here, with the oldest and newest dependencies"
	@echo "make docs         the documentation site in site/, its tutorials run and its links checked"

demo: $(VENV)/.demo
	$(BIN)/shiftbench demo

test: lint unit fresh

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

# The workers share compiled tests, also where Python is told to write no bytecode.
unit coverage soak: export PYTHONDONTWRITEBYTECODE =
unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not soak" $(PYTEST_OPTIONS)

# The same tests take about half as long again when branches are counted, so that `make test` does not.
coverage: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not soak" --cov --cov-report=term-missing $(PYTEST_OPTIONS)

# What has a verdict is not run again: remove .mutants/ to begin anew.
mutants: $(VENV)/.dev
	$(BIN)/python scripts/mutants.py; status=$$?; $(BIN)/python scripts/mutants.py --page > /dev/null; exit $$status

# Needs clang. What found new code is kept in .fuzz/ for the next time. For example: make fuzz FUZZ_SECONDS=3600
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev
	$(PIP) atheris
	$(BIN)/python -m tests.fuzz $(FUZZ_SECONDS)

soak: $(VENV)/.dev
	bash scripts/system-packages $(SOAK_SYSTEM)
	rm -f .counts.json
	@# After failures and after Ctrl-C, too, the page states what was counted.
	@trap : INT; SHIFTBENCH_COUNTS=$(CURDIR)/.counts.json \
	    $(BIN)/pytest -n 2 --dist worksteal -m "soak or reliability" $(PYTEST_OPTIONS); status=$$?; \
	$(BIN)/python scripts/reliability.py .counts.json && exit $$status
	@$(MAKE) --no-print-directory environments

# The README's commands, read from it, in an environment that has nothing but the wheel and what it requires.
fresh: $(VENV)/.dev
	$(BIN)/python scripts/environments.py --fast

# The same for all pages, versions of Python, and the oldest and newest dependencies. Needs a package registry.
environments: $(VENV)/.dev
	$(BIN)/python scripts/environments.py $(ENVIRONMENTS_OPTIONS)

# Neither the build nor the built site asks anything of the network.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

performance: $(VENV)/.dev
	$(BIN)/python -m benchmarks --page-only

$(VENV)/.base: scripts/prepare scripts/system-packages
	bash scripts/prepare $(PYTHON) $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.base pyproject.toml constraints.txt
	@echo "Installing shiftbench with what the demo needs (about two minutes) ..."
	$(PIP) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.base scripts/system-packages pyproject.toml constraints.txt
	@echo "Installing shiftbench with everything its tests need (about three minutes) ..."
	bash scripts/system-packages $(SYSTEM)
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) demo-workspace site .mypy_cache .ruff_cache
