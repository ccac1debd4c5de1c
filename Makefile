# `make` lists the targets. Everything runs in .venv, which the first target creates.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
TIMED := $(PYTHON) scripts/timed.py
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder --durations 10
WITHOUT_SPARK := tests/unit tests/mutants tests/simulator tests/differential tests/web
MARKDOWN := $(wildcard *.md .github/*.md docs/*.md docs/*/*.md dbt_streamsql/*/*/*.md integration_tests/*/*.md)
# Tests that are picked by hand do not rotate.
TURN = $(or $(SLICE),$(if $(ARGS),all))
EPOCHS ?= 3000
TEXTS ?= 10000
WIDE ?= 1000
SEED ?= 1000
SEEDS ?= 20000
JOBS ?= 1
ROUNDS ?= 1
N ?= 50
READS ?= 1000
WHAT ?= view replace wear warm dag

# Byte code that is kept saves every process of the tests some seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install check format unit coverage test processes nightly browser property mutants suites differential simulate kills chaos isolation injections conformance bench bench-ivm platforms locks versions demo newcomer release docs services openapi prometheus classes clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: ## .venv with the project (editable) and its tools; PYTHON=python3.12 picks the Python
	@$(PYTHON) scripts/bootstrap.py

check: install .venv/.markdown ## ruff, mypy, the walls between the rooms, spelling and Markdown, without running anything
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports

# All pages take ten seconds, so only those that changed are read again.
.venv/.markdown: $(MARKDOWN) pyproject.toml | install
	@$(BIN)/pymarkdown scan $(if $(filter pyproject.toml,$?),$(MARKDOWN),$?)
	@touch $@

format: install ## let ruff put the files in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

unit: install ## everything without Spark; ARGS='-k join' picks tests
	@$(TIMED) unit $(PYTEST) --tier unit $(PARALLEL) --dist worksteal $(or $(ARGS),$(WITHOUT_SPARK))

coverage: install ## the lines and branches that the tests of `unit` reach in the rooms without Spark; fails below the floor of pyproject.toml
	@$(PYTEST) --cov --tier unit $(PARALLEL) --dist worksteal $(or $(ARGS),$(WITHOUT_SPARK))

test: ## everything a change must pass with an embedded Spark, in 20 minutes; SLICE=all is all of it
	@rm -f .seconds.json
	@$(TIMED) check $(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory $(if $(ARGS),,unit classes)
	@SLICE=$(TURN) $(TIMED) test $(PYTEST) --tier test $(PARALLEL) $(ARGS)

processes: install classes ## what starts processes: kills, warm engine, Connect, cluster, metastores, PostgreSQL, Delta, browser
	@SLICE=$(TURN) $(TIMED) processes $(PYTEST) -m processes --tier processes $(PARALLEL) $(ARGS)

platforms: install classes ## a project of seven models on S3 (Glue, PostgreSQL, REST, a cluster) and GCS: seconds and requests of each run
	STREAMSQL_LARGE_SERVERS=1 $(PYTEST) -s -m '' tests/functional/dbt/test_platforms.py $(ARGS)

locks: install ## write scripts/locks again, the versions of `make install` and the lowest; ARGS=--upgrade takes the newest of all
	@$(BIN)/python scripts/locks.py $(ARGS)

versions: install classes ## a share of the tests with other versions of Spark, Iceberg, dbt-core, Python, Java; ARGS='--only spark-4.0' picks a set
	$(BIN)/python scripts/versions.py $(ARGS)

nightly: install classes ## all campaigns of tests/campaigns.yml in full; ARGS='--only simulate --only chaos'
	@$(BIN)/python -m tests.nightly $(ARGS)

classes: install
	@$(BIN)/python -m tests.support.spark_defaults

browser: ## Chromium for the tests of the pages, by apt as root on Debian
	@$(PYTHON) scripts/get_chromium.py

prometheus: install ## Prometheus for the tests of the alerts, from the Debian package; installs nothing
	@$(BIN)/python scripts/get_prometheus.py

property: install ## random tables and queries against the query itself; EPOCHS=… of them, WIDE=… of wide tables, from SEED=…, all in one WAY=…
	STREAMSQL_WAY="$(WAY)" STREAMSQL_EPOCHS=$(EPOCHS) STREAMSQL_WIDE=$(WIDE) STREAMSQL_SEED=$(SEED) $(PYTEST) -s tests/property $(ARGS)

suites: install ## TPC-H and Nexmark as views, compared with DuckDB after every epoch; random queries of all of SQL on Spark
	$(PYTEST) -s -m suites $(ARGS)

differential: install ## the compiler's plans on DuckDB, random queries of all of SQL; EPOCHS=… of them from SEED=…, and TEXTS=… typed otherwise
	STREAMSQL_DUCK_EPOCHS=$(EPOCHS) STREAMSQL_DUCK_TEXTS=$(TEXTS) STREAMSQL_DUCK_PAIRS=1 STREAMSQL_SEED=$(SEED) $(PYTEST) -s tests/differential $(ARGS)

simulate: install ## the epoch protocol with crashes, errors and lost locks; SEEDS=… of them from SEED=…, in JOBS=… processes
	$(BIN)/python -m tests.simulator.run --seeds $(SEEDS) --seed $(SEED) --jobs $(JOBS)

mutants: install ## bugs planted one at a time, of which the tests must find 95 %; ARGS='--tier duckdb'
	$(BIN)/python -m tests.mutants.run $(ARGS)

kills: classes ## SIGKILL before and after every durable step, then rerun; ROUNDS=… of all
	STREAMSQL_KILLS=$(ROUNDS) $(PYTEST) -m '' tests/faults $(ARGS)

chaos: classes ## kills, zombies, full and read-only disks at random; N=… of them from SEED=…, or FAULT=… again, in JOBS=… processes
	$(BIN)/python -m tests.faults.chaos --faults $(N) --seed $(SEED) --jobs $(JOBS) $(if $(FAULT),--fault $(FAULT)) $(ARGS)

isolation: classes ## READS=… at every level of consistency beside a writer that is killed, from SEED=…
	$(BIN)/python -m tests.isolation.run --reads $(READS) --seed $(SEED) $(ARGS)

injections: classes ## every naughty string in every place of a config, rendered, compared and stored
	STREAMSQL_INJECTIONS=all STREAMSQL_SEED=$(SEED) $(PYTEST) -s tests/functional/injections $(ARGS)

conformance: install ## all of dbt's own test suite for adapters; ARGS='-k snapshot' picks units
	$(PYTEST) tests/conformance $(ARGS)

bench: install ## small changes, replaced tables, wear, the warm engine; WHAT=view|replace|wear|warm|dag|wide|ttl|soak|peers|clickstream|project|compiling|kinds|heat|objects picks one
	@for what in $(WHAT); do $(BIN)/python -m benchmarks.$$what $(ARGS) || exit 1; done

bench-ivm: install ## TPC-H at scale 10: an epoch of changes against the whole query; ARGS='--scale 1' is quicker
	$(BIN)/python -m benchmarks.ivm $(ARGS)

docs: install ## the site of the documentation into target/site; a broken link fails it. ARGS=serve shows it while you write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(or $(ARGS),build --strict --quiet)

openapi: install ## write docs/openapi.json from what MetaService serves
	$(BIN)/python scripts/openapi.py

services: install ## a Kafka broker and a PostgreSQL to play with: prints their addresses, Ctrl-C stops them
	@PYTHONPATH=. $(BIN)/python scripts/services.py

demo: ## real flights, two dbt runs, what each view did and what a full refresh would cost
	@$(PYTHON) scripts/demo.py $(ARGS)

release: install ## wheel, sdist and notes into dist/, checked: metadata, and a newcomer who installs the wheel
	@$(BIN)/python scripts/release.py $(ARGS)

newcomer: install ## the README's Start, the tutorial and the page on CI, followed with the built wheel in an empty home; ARGS='--rounds 3'
	@$(BIN)/python scripts/newcomer.py $(ARGS)

clean: ## remove what the verbs made; the cache of jars stays
	rm -rf .venv .coverage .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
