# Every target sets up what it needs: python3.11 or newer with venv, and make, are enough to start with.

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

# The newest python3 on PATH that really starts, is new enough and can make an environment.
PYTHON ?= $(shell for name in python3.15 python3.14 python3.13 python3.12 python3.11 python3 python; do \
	if $$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$name; break; fi; done)

# Tests run side by side where there is more than one processor.
PYTEST_FLAGS ?= $(shell [ "$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)" -gt 1 ] && echo '-n 2')

# Tests over wires wait for processes half of their time, and differ most in how long they take: what a worker has left is shared.
WIRES_FLAGS ?= $(if $(PYTEST_FLAGS),-n 4 --dist worksteal)

# Without bytecode each run of the tests compiles them anew, and each of hundreds of processes the package.
unexport PYTHONDONTWRITEBYTECODE

# What `make test` runs.
IN_MEMORY := --ignore=tests/wires --ignore=tests/long --ignore=tests/packages -m 'not wires and not long'

# What `make test-wires` runs: a folder, and the files elsewhere in which a test has the mark.
ON_WIRES = tests/wires $(shell grep -rl --include='test_*.py' 'pytest.mark.wires' tests) -m 'wires and not long'

# What flake8-async reads, at a fifth of a second a file: files with nothing that its rules are about are left out.
ASYNC_FILES = $(shell grep -rlE --include='*.py' '\b(async|await)\b|Cancelled|BaseException|except:' trio_mcp transports examples tests/bench)

# How long `make fuzz` tries new messages; both roles share it.
FUZZ_SECONDS ?= 120

# How long `make chaos` goes on. CHAOS_FLAGS='--chaos-seed N' begins with a run that has failed.
CHAOS_SECONDS ?= 3600

.DEFAULT_GOAL := help
.PHONY: help demo cast dashboard test test-pythons pythons test-wires packages fuzz sweep chaos long conformance autobahn mutants bench site site-look site-links pictures lint platforms licences audit clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1  /p' Makefile

demo: $(STAMPS)/run  ## see it work
	@$(BIN)/trio-mcp demo && echo
	@env -u OPENAI_API_KEY -u ANTHROPIC_API_KEY $(BIN)/python examples/researcher.py demo && echo
	@$(BIN)/python examples/report.py demo

cast: $(STAMPS)/run  ## record the demonstration as docs/pictures/demo.svg
	$(BIN)/python docs/pictures/cast.py

dashboard: $(STAMPS)/bench $(STAMPS)/run  ## draw docs/pictures/dashboard.svg from a run of two minutes (prometheus has to be there)
	PYTHONPATH=tests $(BIN)/python docs/pictures/dashboard.py

test: $(STAMPS)/dev  ## run the tests in memory, and one conversation over each wire
	$(BIN)/python -m pytest $(PYTEST_FLAGS) $(IN_MEMORY)

# Versions of Python differ in which code works, and not in what it does with which data: so every test and every rule of the contract
# runs, but only the first and the last case of a test, and ten examples of a property.
test-pythons: | $(BIN)/python  ## run the tests in memory on a newer CPython, in a Debian of its own (root and debootstrap have to be there)
	TRIO_MCP_RUNS=10 $(BIN)/python tests/pythons/run.py $(PYTEST_FLAGS) $(IN_MEMORY) --few --hypothesis-profile few

pythons: | $(BIN)/python  ## make the Debian of `make test-pythons`, and install there what the tests need
	$(BIN)/python tests/pythons/run.py --version

test-wires: $(STAMPS)/dev  ## run the tests over real sockets, with real processes and with other peers
	$(BIN)/python -m pytest $(WIRES_FLAGS) $(ON_WIRES)

packages: $(STAMPS)/dev  ## build the wheel and the sdist, install each, and run it without the checkout (needs a package index)
	$(BIN)/python -m pytest -o faulthandler_timeout=0 tests/packages

fuzz: $(STAMPS)/dev  ## try hostile messages in both roles for FUZZ_SECONDS
	$(BIN)/python -m pytest -o faulthandler_timeout=0 tests/fuzz --fuzz-seconds $(FUZZ_SECONDS)

sweep: $(STAMPS)/dev  ## interrupt every conversation at every step
	$(BIN)/python -m pytest $(PYTEST_FLAGS) tests/sweep --every-step

chaos: $(STAMPS)/dev  ## let everything go wrong with processes on each store for CHAOS_SECONDS, and count effects
	$(BIN)/python -m pytest -o faulthandler_timeout=0 tests/long/test_chaos.py --chaos-seconds $(CHAOS_SECONDS) $(CHAOS_FLAGS)

long: $(STAMPS)/dev  ## run the tests that take hours: the whole contract everywhere, mutants
	TRIO_MCP_RUNS=10000 $(BIN)/python -m pytest $(PYTEST_FLAGS) -o faulthandler_timeout=0 --hypothesis-profile long -m 'long or hypothesis'
	$(MAKE) sweep
	$(MAKE) fuzz FUZZ_SECONDS=14400
	$(MAKE) mutants

conformance: $(STAMPS)/dev  ## run the official conformance suite (npm has to be there)
	$(BIN)/python tests/conformance/run.py
	$(BIN)/python tests/conformance/run.py --relayed --only sampling --results build/relayed

autobahn: $(STAMPS)/dev  ## run the Autobahn test suite for WebSockets (CPython 2.7 has to be there)
	$(BIN)/python tests/transports/autobahn.py

mutants: $(STAMPS)/dev  ## break forty rules one by one and see which test notices
	$(BIN)/python tests/mutants/run.py $(MUTANTS_FLAGS)

bench: $(STAMPS)/bench  ## compare the CPU time of a call with other libraries, floors and the page (gcc and taskset have to be there)
	PYTHONPATH=tests $(BIN)/python -m bench --check $(BENCH_FLAGS)

site: $(STAMPS)/docs  ## build the documentation into build/site; a warning is an error
	$(BIN)/python docs/site/staging.py build/site-source
	$(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going --write-all -j auto -c docs/site build/site-source build/site
	$(BIN)/python docs/site/check.py build/site
	@echo 'open build/site/index.html'

site-look: site  ## open every page of the site in Chromium, light and dark, narrow and wide
	$(BIN)/python tests/site/look.py build/site $(LOOK_FLAGS)

site-links: $(STAMPS)/docs  ## request every external link of the site
	$(BIN)/python docs/site/staging.py build/site-source
	$(BIN)/sphinx-build --quiet -b linkcheck -c docs/site build/site-source build/site-links

pictures: build/pictures/node_modules  ## render the pictures of the documentation (npm has to be there)
	cp docs/pictures/render.mjs build/pictures/
	node build/pictures/render.mjs docs/pictures/*.d2

build/pictures/node_modules:
	npm install --silent --no-audit --no-fund --prefix build/pictures @terrastruct/d2@0.1.33

lint: $(STAMPS)/dev  ## check format, style, types, the layers, and that nothing has grown
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/flake8 $(ASYNC_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/bench/house.py

platforms: $(STAMPS)/dev  ## check the types of the product as on macOS and on Windows: what only Unix has is an error outside of its guard
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin trio_mcp transports/trio_mcp_transports
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 trio_mcp transports/trio_mcp_transports

licences: $(STAMPS)/dev  ## check the licence of every package that users install, and write the table of docs/internals/releasing.md
	$(BIN)/python tests/packages/licences.py

audit: $(STAMPS)/dev  ## look up known vulnerabilities of every package that users install (after make licences; pypi.org has to be reached)
	build/release/bin/python -m pip freeze --exclude trio-mcp > build/release/frozen.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r build/release/frozen.txt

clean:  ## remove what was built here
	rm -rf $(VENV) build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'no python3.11 or newer with venv was found on PATH' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/run

$(STAMPS)/docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/run

$(STAMPS)/bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/run
