# The doors of the project. `make` alone lists them.

PYTHON ?= python3
SEED ?= 1
CASES ?= 2000
RECORDS ?=
LIVES ?= 10000
SECONDS ?=
JVM_TESTS ?= tests/jvm
# Without writers on executors, which need brokers of 4.0 or later.
OLD_BROKER_TESTS ?= tests/jvm/kafka --ignore tests/jvm/kafka/test_shared_transactions.py $(addprefix tests/jvm/runtime/,test_pause.py test_renames.py test_savepoints.py)
UNIT_TESTS := tests/unit tests/golden examples --numprocesses auto --dist worksteal

VENV := .venv
BIN := $(VENV)/bin
PARTS := .parts/kafka
PARTS_READY := $(PARTS)/.ready
CONNECTOR := .parts/connector
CONNECTOR_READY := $(CONNECTOR)/.ready
OLD_KAFKA := .parts/kafka-3.9
OLD_KAFKA_READY := $(OLD_KAFKA)/.ready
TOXIPROXY := .parts/toxiproxy
TOXIPROXY_READY := $(TOXIPROXY)/.ready
DEPLOY_TOOLS := .parts/deploy
DEPLOY_TOOLS_READY := $(DEPLOY_TOOLS)/.ready
PROMETHEUS := .parts/prometheus
POSTGRES := .parts/postgres
POSTGRES_READY := $(POSTGRES)/.ready
PROMETHEUS_READY := $(PROMETHEUS)/.ready
REGISTRY := .parts/registry
REGISTRY_READY := $(REGISTRY)/.ready
LAKE := .parts/lake
LAKE_READY := $(LAKE)/.ready
CHROMIUM := .parts/chromium
CHROMIUM_READY := $(CHROMIUM)/.ready
SPARK_READY := .parts/spark/.ready
PYRIGHT := .parts/pyright
PYRIGHT_READY := $(PYRIGHT)/.ready
QUIX := .parts/quix
QUIX_READY := $(QUIX)/.ready
SPARKS ?= $(shell sed -n 's/^pyspark==\([^ ]*\).*/\1/p' tools/sparks/pyspark.lock)
SITE := .parts/site
SITE_READY := $(SITE)/.ready
VENV_READY := $(VENV)/.ready
SOURCES := src verification benchmarks tests tools examples deploy

# `verification`, `benchmarks` and `examples` are packages at the root that are not installed.
export PYTHONPATH := $(CURDIR)

.DEFAULT_GOAL := help
.PHONY: help setup check types format test test-slow coverage test-jvm conformance conformance-mutants conformance-epochs parity large-epochs bench bench-engine bench-first bench-lane bench-time bench-local blocking on-spark sparks without-spark simulate integration chaos chaos-local sources evolution cluster takeover operations operable browser screenshots registry lake docs security audit lock jars-pin site scaling examples first-day dist release-check deploy-check old-broker clean

help: ## List the doors
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  settable: PYTHON=$(PYTHON) SEED=$(SEED) CASES=$(CASES) RECORDS=<records of bench-lane>"

setup: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(SPARK_READY) ## Bring all parts, pinned by hash; quick when nothing changed

$(VENV_READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@# pyspark comes as source: first the locked setuptools, which then builds it without fetching another.
	@# --no-deps: the lock names every package; resolving again, pip refuses extras once a newer release is out.
	sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock | $(BIN)/python -m pip install --quiet --require-hashes -r /dev/stdin
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-build-isolation -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(PARTS_READY): tools/kafka/pom.xml tools/kafka/jars.sha256
	@tools/kafka/bring $(PARTS)
	@touch $@

$(OLD_KAFKA_READY): tools/kafka-3.9/pom.xml tools/kafka-3.9/jars.sha256
	@tools/kafka-3.9/bring $(OLD_KAFKA)
	@touch $@

# Only the benchmark of Spark by itself reads Kafka with it.
$(CONNECTOR_READY): tools/connector/bring tools/connector/jars.sha256
	@tools/connector/bring $(CONNECTOR)
	@touch $@

$(TOXIPROXY_READY): tools/toxiproxy/go.mod tools/toxiproxy/go.sum
	@tools/toxiproxy/bring $(TOXIPROXY)
	@touch $@

$(DEPLOY_TOOLS_READY): tools/deploy/go.mod tools/deploy/go.sum tools/deploy/decode/main.go
	@tools/deploy/bring $(DEPLOY_TOOLS)
	@touch $@

# The archive of the JVM's classes, which applications that run for long enough make by themselves: tests do not.
$(SPARK_READY): $(VENV_READY)
	@$(BIN)/python -m penstock.spark.archiving < /dev/null
	@mkdir -p $(@D)
	@touch $@

test-jvm coverage blocking on-spark integration chaos chaos-local cluster takeover sources evolution: $(SPARK_READY)

$(POSTGRES_READY): tools/postgres/bring
	@tools/postgres/bring $(POSTGRES)
	@touch $@

$(LAKE_READY): tools/lake/bring tools/lake/jars.sha256
	@tools/lake/bring $(LAKE)
	@touch $@

$(PROMETHEUS_READY): tools/prometheus/bring
	@tools/prometheus/bring $(PROMETHEUS)
	@touch $@

$(REGISTRY_READY): tools/registry/bring tools/registry/pom.xml tools/registry/jars.sha256 tools/registry/archive.sha256
	@tools/registry/bring $(REGISTRY)
	@touch $@

$(CHROMIUM_READY): tools/chromium/bring
	@tools/chromium/bring $(CHROMIUM)
	@touch $@

$(PYRIGHT_READY): tools/pyright/bring tools/pyright/package.json tools/pyright/package-lock.json
	@tools/pyright/bring $(PYRIGHT)
	@touch $@

# A rival that needs other versions of what we need has its own environment. It needs Python 3.11 or later.
$(QUIX_READY): benchmarks/quix-requirements.lock
	$(PYTHON) -m venv $(QUIX)
	$(QUIX)/bin/python -m pip install --quiet --require-hashes --no-deps -r benchmarks/quix-requirements.lock
	@touch $@

# A version of PySpark has its own environment, which differs from .venv in nothing else.
.parts/sparks/%/.ready: requirements.lock pyproject.toml tools/sparks/bring tools/sparks/pyspark.lock
	@tools/sparks/bring $(PYTHON) $* $(@D)
	@touch $@

$(SITE_READY): docs/requirements.lock
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --require-hashes --no-deps -r docs/requirements.lock
	@touch $@

check: $(VENV_READY) ## Lint, format, types, the map of rooms, house rules; the house in figures
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q --no-cov -p no:randomly tests/tidy
	@$(BIN)/python -m tests.tidy.house

types: $(VENV_READY) $(PYRIGHT_READY) ## What type checkers make of the wheel, and of programs that use it rightly and wrongly
	$(BIN)/python -m tests.types

format: $(VENV_READY) ## Format, and fix what can be fixed without a thought
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

test-jvm: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(POSTGRES_READY) $(PROMETHEUS_READY) ## Tests with a real broker, and with Spark where it says so
	$(BIN)/pytest --no-cov -m jvm $(JVM_TESTS)

test: $(VENV_READY) ## Unit tests, and those of the examples, without slow ones; no Java
	PYTHONHASHSEED=0 $(BIN)/pytest --no-cov -m "not jvm and not slow" $(UNIT_TESTS)

test-slow: $(VENV_READY) ## The slow ones
	PYTHONHASHSEED=0 $(BIN)/pytest --no-cov -m "not jvm and slow" $(UNIT_TESTS)

coverage: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(POSTGRES_READY) $(PROMETHEUS_READY) ## All of these, and those with Java; the lines and branches that they reach together
	@mkdir -p reports
	PYTHONHASHSEED=0 COVERAGE_FILE=reports/unit.coverage $(BIN)/pytest -m "not jvm" $(UNIT_TESTS) --cov --cov-report=
	COVERAGE_FILE=reports/jvm.coverage $(BIN)/pytest -m jvm $(JVM_TESTS) --cov --cov-report=
	COVERAGE_FILE=reports/all.coverage $(BIN)/coverage combine --quiet --keep reports/unit.coverage reports/jvm.coverage
	COVERAGE_FILE=reports/all.coverage $(BIN)/coverage json --quiet -o reports/coverage.json
	@$(BIN)/python -m tests.tidy.house
	COVERAGE_FILE=reports/all.coverage $(BIN)/coverage report --fail-under=97

conformance: $(VENV_READY) $(PARTS_READY) ## Generated topologies against Kafka Streams itself (SEED, CASES)
	$(BIN)/python -m verification.conformance run --seed $(SEED) --cases $(CASES)

conformance-mutants: $(VENV_READY) $(PARTS_READY) ## Planted bugs, each of which conformance must catch
	$(BIN)/python -m verification.conformance mutants

conformance-epochs: $(VENV_READY) ## Generated topologies in epochs, through cuts, lanes and restarts, against the test driver; then planted bugs (SEED, CASES)
	$(BIN)/python -m verification.conformance epochs --seed $(SEED) --cases $(CASES)

parity: $(VENV_READY) $(PARTS_READY) ## Every public method of Kafka Streams' DSL: mapped, or never with a reason
	$(BIN)/python -m verification.conformance parity

large-epochs: $(VENV_READY) $(PARTS_READY) ## Input that no epoch could hold at once: large records, many outputs, slow code, records that kill
	LARGE_EPOCHS=full $(BIN)/pytest --no-cov -o faulthandler_timeout=1800 -m jvm tests/jvm/large

bench-lane: $(VENV_READY) ## A lane beside a hand-written loop (RECORDS)
	$(BIN)/python -m benchmarks.lane $(if $(RECORDS),--records $(RECORDS))

bench: $(VENV_READY) $(PARTS_READY) $(if $(QUICK),,$(CONNECTOR_READY) $(QUIX_READY)) ## Penstock beside Kafka Streams, Spark and Quix Streams: hours (BENCH="--only A,B --rounds 1"; QUICK=1: minutes)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(BENCH)

bench-engine: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(CONNECTOR_READY) ## Lanes in Spark's tasks beside forked processes, three hosts beside one, faults, start, standby, scaling: 70 minutes (ENGINE_BENCH="--only start standby --rounds 1")
	$(BIN)/python -m benchmarks.engine $(ENGINE_BENCH)

bench-first: $(VENV_READY) $(PARTS_READY) ## The part of it that was there first: count and sum by key, latency and restore, beside Kafka Streams
	$(BIN)/python -m benchmarks --only B,I-1000,I-10000,I-half,K --sides penstock,kafka-streams --report reports/bench-first.json

bench-local: $(VENV_READY) $(PARTS_READY) ## The local engine beside Kafka Streams: first commit, latency, memory
	$(BIN)/python -m benchmarks.local

bench-time: $(VENV_READY) $(PARTS_READY) ## Timers of a lane, and records that a service is asked about on Spark
	$(BIN)/python -m benchmarks.time

blocking: $(VENV_READY) $(PARTS_READY) ## Functions that wait or are slow, on both engines: calls in flight, two lanes beside one, calls before the first commit
	$(BIN)/python -m benchmarks.blocking

on-spark: $(VENV_READY) $(PARTS_READY) ## Every record is processed in a Spark task, with default settings, here and on three hosts; a planted fallback is seen (QUICK=1: a minute)
	$(BIN)/python -m verification.on_spark $(if $(QUICK),--quick)

sparks: $(VENV_READY) $(PARTS_READY) $(SPARKS:%=.parts/sparks/%/.ready) ## Lanes in Spark with each version of PySpark that is supported (SPARKS="4.2.1 4.3.0"; QUICK=1: tests only)
	$(BIN)/python -m verification.sparks $(SPARKS) $(if $(QUICK),--quick)

without-spark: $(VENV_READY) $(PARTS_READY) ## Environments as images have them, with Spark and without: their sizes; an application where Spark is not installed
	$(BIN)/python -m verification.without_spark

integration: $(VENV_READY) $(PARTS_READY) ## The same topologies in the test driver, in epochs, on Spark and on the local engine (SEED; QUICK=1: minutes)
	$(BIN)/python -m verification.integration --seed $(SEED) $(if $(QUICK),--quick)
	$(BIN)/python -m verification.integration.generated --seed $(SEED) --host spark --cases $(if $(QUICK),12,60)
	$(if $(QUICK),,$(BIN)/python -m verification.integration.generated --seed $(SEED) --host local --cases 150)

chaos: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(POSTGRES_READY) ## Faults under load, nothing lost or doubled (SEED; QUICK=1: six minutes)
	$(BIN)/python -m verification.chaos --seed $(SEED) $(if $(QUICK),--campaign quick)

# All combinations of all topologies there take an hour more: python -m verification.integration --hosts cluster
cluster: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) ## A Spark cluster of three hosts: topologies, then hosts, executors and drivers that die: 90 minutes (SEED; QUICK=1: minutes)
	$(BIN)/python -m verification.integration --seed $(SEED) --hosts cluster --quick --report reports/cluster-integration.json
	$(BIN)/python -m verification.integration.generated --seed $(SEED) --host cluster --cases $(if $(QUICK),12,60)
	$(BIN)/python -m verification.writers --seed $(SEED) $(if $(QUICK),--quick)
	$(BIN)/python -m verification.cluster --seed $(SEED) $(if $(QUICK),--quick,--without write_ids)
	$(if $(QUICK),,$(BIN)/python -m verification.takeover --seed $(SEED) --kills 10 --engine cluster)
	$(if $(QUICK),,$(BIN)/python -m benchmarks.moved_lanes)
	$(BIN)/python -m verification.cluster.summary

simulate: $(VENV_READY) ## Applications in a simulated world: kills, lost answers, suspended instances, lost disks; results beside the test driver's; then planted bugs (SEED; LIVES=10000; SECONDS=60: so long, without planted bugs)
	$(BIN)/python -m verification.simulation --seed $(SEED) --lives $(LIVES) $(if $(SECONDS),--seconds $(SECONDS) --no-planted)

takeover: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) ## Standbys that take over from killed, stopped and silent instances, and how long that takes (SEED; KILLS=20; ENGINE=spark, cluster)
	$(BIN)/python -m verification.takeover --seed $(SEED) $(if $(KILLS),--kills $(KILLS)) $(if $(ENGINE),--engine $(ENGINE))

scaling: $(VENV_READY) ## What a load needs, where each way to commit breaks, and a model of the last one with planted bugs (LOAD="--records 1e6 --keys 1e9")
	$(BIN)/python -m verification.scaling --explore --measure $(LOAD)

chaos-local: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(POSTGRES_READY) ## 2,000 kills on the local engine, and changes of the engine (SEED)
	$(BIN)/python -m verification.chaos --campaign local --seed $(SEED) --report reports/chaos-local.json

browser: $(VENV_READY) $(CHROMIUM_READY) ## The dashboard in a real browser
	$(BIN)/pytest --no-cov tests/browser

screenshots: $(VENV_READY) $(PARTS_READY) $(CHROMIUM_READY) $(SITE_READY) ## The pictures of the documents: dashboard, terminal, notebook and site; every page of the site in a browser
	$(BIN)/python -m verification.pictures --only dashboard spark terminal notebook
	@# The site has those pictures, so it is built between the two.
	$(MAKE) --no-print-directory site
	$(BIN)/python -m verification.pictures --only site

sources: $(VENV_READY) $(PARTS_READY) ## Files and then a topic, killed around the hand-over, beside the topic alone (SEED)
	$(BIN)/python -m verification.sources --seed $(SEED)

evolution: $(VENV_READY) $(PARTS_READY) ## A million rows migrated under kills, and plans of edits beside what happens
	$(BIN)/python -m verification.evolution

operations: $(VENV_READY) $(PARTS_READY) $(TOXIPROXY_READY) $(if $(QUICK),,$(PROMETHEUS_READY) $(CHROMIUM_READY)) ## Security, plans, probes, dead letters, queries, overhead (QUICK=1: minutes)
	$(BIN)/python -m verification.operations $(if $(QUICK),--quick)

operable: operations   # its former name

registry: $(VENV_READY) $(PARTS_READY) $(REGISTRY_READY) ## Serdes with a real schema registry, their bytes beside Java's, their speed beside JSON's (SEED)
	$(BIN)/python -m verification.registry --seed $(SEED)

lake: $(VENV_READY) $(PARTS_READY) $(POSTGRES_READY) $(LAKE_READY) ## Delta tables and PostgreSQL as sources, with their jars
	$(BIN)/pytest --no-cov -m jvm tests/jvm/runtime/test_lakes.py

examples: $(VENV_READY) $(PARTS_READY) $(if $(QUICK),,$(POSTGRES_READY)) ## Every example on a real broker, on the local engine, beside the test driver (QUICK=1: two of them)
	$(BIN)/python -m verification.examples $(if $(QUICK),--quick)

first-day: $(VENV_READY) $(PARTS_READY) $(if $(QUICK),,$(SITE_READY)) ## The wheel in an empty environment, and the first pages' commands as they stand (QUICK=1: two pages, no mistakes, no site)
	$(BIN)/python -m verification.first_day $(if $(QUICK),--quick)

docs: $(VENV_READY) ## Run the examples of the documents as they stand
	$(BIN)/pytest tests/docs

site: $(SITE_READY) ## Build the site of the documents into reports/site; every link is checked, and nothing is loaded from elsewhere (REPOSITORY=https://…: with links to the code)
	@# Without --quiet, which would hide from --strict the warnings that it counts.
	NO_MKDOCS_2_WARNING=1 REPOSITORY=$(REPOSITORY) $(SITE)/bin/mkdocs build --strict
	$(SITE)/bin/python -m tools.site_check reports/site

security: $(VENV_READY) ## The checklist's tests that need no Java: settings, names, TLS, hostile bytes, supply chain
	$(BIN)/pytest --no-cov --numprocesses auto tests/security

deploy-check: $(VENV_READY) $(DEPLOY_TOOLS_READY) ## The Helm chart renders, and makes the manifests of deploy/kubernetes; all manifests are valid
	$(BIN)/pytest --no-cov tests/deploy tests/unit/deploy

old-broker: $(VENV_READY) $(OLD_KAFKA_READY) $(TOXIPROXY_READY) ## Tests that need a broker and no Spark, with the oldest that is supported
	BROKER_JARS=$(OLD_KAFKA) $(BIN)/pytest --no-cov -m jvm -k "not spark" $(OLD_BROKER_TESTS)

audit: $(VENV_READY) ## Known vulnerabilities of what is locked; asks a service on the network, and fails if it knows nothing
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock

lock: $(VENV_READY) ## Resolve the dependencies anew into requirements.lock, what images need of it with and without Spark, and those of Quix Streams and of the site
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url pyproject.toml --all-extras --group dev --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --constraint requirements.lock \
		--no-header --no-annotate --no-emit-index-url pyproject.toml --all-extras --output-file deploy/requirements.lock
	@# The local engine needs neither Spark nor what only Spark needs.
	printf '%s\n' pandas py4j pyspark | $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
		--constraint requirements.lock --excludes /dev/stdin --no-header --no-annotate --no-emit-index-url pyproject.toml --all-extras \
		--output-file deploy/requirements-local.lock
	echo quixstreams | $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url - --output-file benchmarks/quix-requirements.lock
	printf '%s\n' mkdocs mkdocs-material 'mkdocstrings[python]' | $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url - --output-file docs/requirements.lock

jars-pin: ## Pin the jars that tools/kafka, tools/kafka-3.9, tools/connector, tools/registry and tools/lake now name; read the difference before committing it
	@tools/kafka/bring --pin $(PARTS)
	@tools/kafka-3.9/bring --pin $(OLD_KAFKA)
	@tools/connector/bring --pin $(CONNECTOR)
	@tools/registry/bring --pin $(REGISTRY)
	@tools/lake/bring --pin $(LAKE)
	@touch $(PARTS_READY) $(OLD_KAFKA_READY) $(CONNECTOR_READY) $(REGISTRY_READY) $(LAKE_READY)

# The commit's time is the time of all files in them, so that the same commit gives the same bytes.
dist: $(VENV_READY) ## Build sdist and wheel, and the list of all components (CycloneDX), into dist
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build --target sdist --target wheel --directory dist
	$(BIN)/python -m tools.components dist

release-check: dist ## What is missing for a release: version, changelog, tag, and the content of what is built; publishes nothing
	$(BIN)/python -m tools.release dist

clean: ## Remove caches and reports, not the parts
	rm -rf reports dist build .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
