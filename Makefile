# Everything the project can do, from a machine with only Python >= 3.10, make and pip.
# Environments are built from the hash-pinned locks in requirements/; uv is fetched when it is not there.

ifndef PYTHON
PYTHON := $(shell command -v python3 || command -v python)
endif
ifndef UV
UV := $(or $(shell command -v uv),.tools/uv/bin/uv)
endif
PYTEST_ARGS ?=
LOCK_ARGS ?=

# Other SDK generations and real servers, each in an environment of its own that does not hold mcp_probe.
ENVS := mcp1 fastmcp2 fastmcp3 fastmcp4 field-time field-git field-fetch field-sqlite field-motherduck

PY := .venv/bin/python
LOCK := $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links $(LOCK_ARGS)

# The interpreter is the machine's: never a downloaded one.
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format format-check types env envs bench-overhead soak docs-check lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: env  ## profile the bundled server under the bundled load and print the report
	@.venv/bin/mcp-probe demo

test: env envs lint format-check types  ## everything CI checks: lint, format, types, tests with coverage
	@$(PY) -m pytest --cov --cov-report=term $(PYTEST_ARGS)

lint: env  ## ruff's rules
	@.venv/bin/ruff check .

format: env  ## rewrite in the project's format
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format .

format-check: env
	@.venv/bin/ruff format --check .

types: env  ## mypy, strict
	@.venv/bin/mypy

docs-check: env  ## links, examples and names in README and docs
	@$(PY) -m pytest tests/docs $(PYTEST_ARGS)

bench-overhead: env  ## what the probe costs: A/A, then A/B interleaved
	@$(PY) benchmarks/overhead.py

soak: env  ## a million requests through one probe; its memory must stay flat
	@$(PY) benchmarks/soak.py

env: .venv/.installed  ## .venv, from requirements/dev.txt

envs: $(ENVS:%=.envs/%/.installed)  ## .envs/*: other SDK generations and real servers, for the integration tests

lock: | $(UV)  ## compile requirements/*.txt anew (LOCK_ARGS=--upgrade for newer versions)
	@$(LOCK) --extra cli --extra otel --extra memory --group dev -o requirements/dev.txt pyproject.toml
	@for name in tool-uv $(ENVS); do $(LOCK) -o requirements/$$name.txt requirements/$$name.in || exit 1; done

clean:  ## remove everything make has made
	rm -rf .venv .envs .tools dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

# The project itself is built by the locked hatchling of this environment, so nothing unpinned is fetched.
.venv/.installed: .venv/.locked pyproject.toml
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.locked: requirements/dev.txt | $(UV)
	@$(call make-venv,.venv,requirements/dev.txt)
	@touch $@

.envs/%/.installed: requirements/%.txt | $(UV)
	@$(call make-venv,.envs/$*,$<)
	@touch $@

define make-venv
echo "make: $(1) from $(2)"; $(check-python); \
$(UV) venv --quiet --clear --python "$(PYTHON)" $(1) && \
$(UV) pip install --quiet --python $(1)/bin/python --require-hashes --requirements $(2)
endef

define check-python
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
{ echo "make: Python 3.10 or newer is needed, and '$(PYTHON)' is not one; say which: make PYTHON=/path/to/python3" >&2; exit 1; }
endef

# Into a folder rather than a virtual environment: Debian's python3 has no ensurepip, and its pip refuses the system.
.tools/uv/bin/uv: requirements/tool-uv.txt
	@echo "make: uv is not on PATH; fetching it into .tools/uv"; $(check-python)
	@rm -rf .tools/uv
	@PIP_ROOT_USER_ACTION=ignore "$(PYTHON)" -m pip install --quiet --disable-pip-version-check --require-hashes --target .tools/uv --requirement requirements/tool-uv.txt
	@touch $@
