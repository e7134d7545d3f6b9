# Every target builds .venv by itself; a second run finds the stamp and installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 20000
FIRST ?= 0
FAST := tests/unit tests/properties tests/regressions tests/test_docs.py tests/test_tidy.py tests/test_again.py
MINUTES ?=
KILLS ?= 200
CLUSTER_FAULTS ?= 500
ZOMBIES ?= 10
HAND_OFFS ?= 50
SPARK_KILLS ?= 100
STREAMS_KILLS ?= 50
TOPIC_KILLS ?= 50
REBALANCES ?= 200
SPARK_REBALANCES ?= 50
HOSTILE_SECONDS ?= 20
HOSTILE_GROUPS ?= 100000
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Many tests wait for something most of the time: two workers more than there are cores.
WORKERS ?= $(shell expr $(JOBS) + 2)
# Without files of bytecode each of the hundreds of processes of the tests compiles all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install docs demo test test-long test-fast check release-check sim chaos chaos-handoff chaos-clients chaos-hostile chaos-sink chaos-spark chaos-spark-topic chaos-streams bench bench-spark bench-coordinators bench-handoff bench-sink peers lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

install: $(STAMP) ## .venv with the locked dependencies

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Holdfast needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock: ## write requirements.lock again, from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11 \
	  --all-extras --group dev --group build --group docs pyproject.toml -o requirements.lock

demo: $(STAMP) ## a broker, a pipeline on Spark, SIGKILLs in the middle, and the count at the end
	$(BIN)/python -m examples.demo

test: $(STAMP) ## check, then all tests but the long ones
	$(MAKE) --no-print-directory check
	$(BIN)/python -m tests.peers.class_archive
	$(BIN)/pytest --short -n $(WORKERS)

test-long: $(STAMP) ## the long tests: pages and programs that start Spark often, kills, controls
	$(BIN)/python -m tests.peers.class_archive
	$(BIN)/pytest --long -n $(WORKERS)

test-fast: $(STAMP) ## the tests that start no process, for the inner loop
	$(BIN)/pytest --fast -n $(JOBS) $(FAST)

check: $(STAMP) ## lint, format, types, import layers, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/pytest tests/test_tidy.py

sim: $(STAMP) ## the deterministic simulation: make sim SEEDS=20000 FIRST=0 MINUTES=30
	$(BIN)/python -m simulation.run --first $(FIRST) --seeds $(SEEDS) --jobs $(JOBS) $(if $(MINUTES),--minutes $(MINUTES))

chaos: $(STAMP) ## real processes under load: SIGKILLs of one broker, then SIGKILLs and SIGSTOPs of three
	$(BIN)/python -m tests.chaos.sigkill --kills $(KILLS)
	$(BIN)/python -m tests.chaos.cluster_faults --kills $(CLUSTER_FAULTS) --stops $(CLUSTER_FAULTS) --ack mixed
	$(BIN)/python -m tests.chaos.cluster_faults --kills $(ZOMBIES) --stops $(ZOMBIES) --ack disk
	$(BIN)/python -m tests.chaos.cluster_faults --kills 0 --stops $(ZOMBIES) --stop-seconds 60 --ack mixed

chaos-handoff: $(STAMP) ## seed 000: Spark's own Kafka source through hand-offs of brokers whose records are on disk alone
	$(BIN)/python -m tests.chaos.seed_000 --hand-offs $(HAND_OFFS)
	! $(BIN)/python -m tests.chaos.seed_000 --hand-offs 12 --unprotected

chaos-clients: $(STAMP) ## groups and exactly once with five clients, through SIGKILLs and pauses
	$(BIN)/python -m tests.chaos.transactions --kills 60
	$(BIN)/python -m tests.chaos.groups --steps 60
	$(BIN)/python -m tests.chaos.several_brokers --rounds 5

chaos-hostile: $(STAMP) ## hostile load: floods, halves and bombs, beside a client that is timed
	$(BIN)/python -m tests.hostile.load.run --seconds $(HOSTILE_SECONDS) --groups $(HOSTILE_GROUPS)

chaos-sink: $(STAMP) ## a sink through rebalances, on Apache Kafka and on Holdfast, as processes and on Spark
	$(BIN)/python -m tests.chaos.sink_incident --rebalances $(REBALANCES)
	$(BIN)/python -m tests.chaos.sink_incident --rebalances $(REBALANCES) --kafka --classic
	$(BIN)/python -m tests.chaos.sink_incident --rebalances $(REBALANCES) --kafka
	$(BIN)/python -m tests.chaos.sink_incident --rebalances $(SPARK_REBALANCES) --spark

chaos-spark: $(STAMP) ## the pipeline: SIGKILLs of driver and executors, local and on a cluster
	$(BIN)/python -m tests.chaos.spark_kills --kills $(SPARK_KILLS) --cluster

chaos-streams: $(STAMP) ## Kafka Streams, exactly once: SIGKILLs of application and broker in turn
	$(BIN)/python -m tests.chaos.streams_kills --kills $(STREAMS_KILLS)

chaos-spark-topic: $(STAMP) ## Spark into a topic: SIGKILLs and zombies, read as a consumer would
	$(BIN)/python -m tests.chaos.spark_topic_kills --kills $(TOPIC_KILLS) --cluster

bench: $(STAMP) ## against Apache Kafka on this machine, in the same run
	$(BIN)/python -m benchmarks.broker

bench-spark: $(STAMP) ## the pipeline against Spark's own Kafka source, its dedup, and Kafka Streams
	$(BIN)/python -m benchmarks.pipeline

bench-coordinators: $(STAMP) ## groups and transactions against Apache Kafka, in the same run
	$(BIN)/python -m benchmarks.coordinators

bench-handoff: $(STAMP) ## hand-offs as clients see them, against three nodes of Apache Kafka
	$(BIN)/python -m benchmarks.handoff

bench-sink: $(STAMP) ## a sink into S3 against Redpanda Connect and a script, in the same run
	$(BIN)/python -m benchmarks.sink

docs: $(STAMP) ## the documentation as a site, in build/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

release-check: $(STAMP) ## build wheel and source archive; version, changelog and tag must agree
	.ci/release-check

peers: $(STAMP) ## fetch Apache Kafka's jars (needs Java 17 and Maven)
	$(BIN)/python -m tests.peers.kafka fetch

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
