# The only door to this project. Bare `make` prints what it offers: a section begins with `##@`,
# and a target's help is the `##` comment on its line.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
LAKE ?= lake
INPUT ?=
ARGS ?=
# Recipes read them from the environment: so paths with spaces and quotes need no escaping here.
export LAKE INPUT PYTHON

BIN := .venv/bin
# Written last, each by a step that succeeded: a step that was cut short is done again.
RUNTIME := .venv/.runtime
DEV := .venv/.dev
JARS := .jars/.complete
CLASSES := .jars/.classes
AIRFLOW := .cache/airflow/.complete
BROKER := .cache/kafka/.complete
SAMPLES := samples/orders_dirty.csv

# $(call lakehouse,COMMAND): INPUT is one path if such a path exists, else words and globs.
define lakehouse
@set --; \
if [ -z "$$INPUT" ]; then set -- --input samples; \
elif [ -e "$$INPUT" ]; then set -- --input "$$INPUT"; \
else for path in $$INPUT; do set -- "$$@" --input "$$path"; done; fi; \
exec $(BIN)/lakehouse $(1) "$$@" --lake "$$LAKE" $(ARGS)
endef
NEEDS_INPUT = $(if $(INPUT),,$(SAMPLES))

.PHONY: help
help: ## Print this
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
	@printf '\nSettings: INPUT=<folder or files> LAKE=<folder, default lake> PYTHON=<3.11 or newer> ARGS=<more options>\n'

##@ Set-up

.PHONY: setup setup-dev
setup: $(RUNTIME) $(JARS) $(CLASSES) ## Make the environment and fetch the jars of Delta and Kafka, once, with a network

setup-dev: $(DEV) $(JARS) $(CLASSES) $(AIRFLOW) $(BROKER) ## The same, and what tests and linters need

# An environment that has the development tools keeps them: the dev lock holds the runtime's too.
# Python is looked at before ingest is run with it: an old one could not even read the code.
$(RUNTIME): requirements/runtime.lock requirements/bootstrap.lock
	@command -v "$$PYTHON" > /dev/null || { \
	  echo "$$PYTHON was not found. Install Python 3.11 or newer, or name one: make setup PYTHON=<path>" >&2; exit 2; }
	@"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$$PYTHON is $$("$$PYTHON" --version 2>&1); 3.11 or newer is needed. Install one and name it: make setup PYTHON=<path>" >&2; exit 2; }
	@echo "Making the environment in .venv (once, some minutes) ..."
	@"$$PYTHON" -m ingest.environment packages requirements/$(if $(wildcard $(DEV)),dev,runtime).lock
	@touch $@

$(DEV): requirements/dev.lock $(RUNTIME)
	@echo "Adding the development tools ..."
	@"$$PYTHON" -m ingest.environment packages requirements/dev.lock
	@touch $@

$(JARS): jars.lock $(RUNTIME)
	@echo "Fetching the jars of Delta and Kafka into .jars (once) ..."
	@$(BIN)/python -m ingest.environment jars
	@touch $@

# Sessions work without the archive, only slower: its failure is told and stops nothing.
$(CLASSES): $(JARS)
	@echo "Recording the driver's classes, so that sessions start faster (once) ..."
	@$(BIN)/python -m ingest.environment classes || true
	@touch $@

# Its pins are others than the project's, so it has an environment of its own.
$(AIRFLOW): requirements/airflow.lock $(DEV)
	@echo "Installing the Airflow on which docs/airflow is tested (once) ..."
	@$(BIN)/python -m ingest.environment airflow
	@touch $@

$(BROKER): requirements/kafka_broker.lock $(DEV)
	@echo "Fetching the broker of Kafka on which messages are tested (once) ..."
	@$(BIN)/python -m ingest.environment broker
	@touch $@

##@ Run

.PHONY: run ingest sample
run: $(RUNTIME) $(JARS) $(CLASSES) $(NEEDS_INPUT) ## The main job: INPUT (default: the samples) into LAKE, judged and tested
	$(call lakehouse,run)

ingest: $(RUNTIME) $(JARS) $(CLASSES) $(NEEDS_INPUT) ## Only files to Bronze
	$(call lakehouse,ingest)

sample: $(SAMPLES) ## Make the small dirty samples in samples/

$(SAMPLES): | $(RUNTIME)
	@$(BIN)/lakehouse sample --out samples

# dbt lifts sqlparse's bounds on long statements by itself; its templater for sqlfluff does not.
SQLFLUFF := "import sqlparse.engine.grouping as g; g.MAX_GROUPING_TOKENS = g.MAX_GROUPING_DEPTH = None; \
from sqlfluff.cli.commands import cli; cli()"

##@ Prove

.PHONY: test lint lint-python lint-sql bench fmt
test: lint $(AIRFLOW) $(BROKER) ## Everything that proves the project: linters, types, unit and integration tests
	@$(BIN)/python -m pytest --durations 25 $(ARGS)

lint: $(DEV) $(JARS) $(CLASSES) ## Check style and types, change nothing
	@$(MAKE) --no-print-directory --jobs 2 lint-python lint-sql

lint-python: $(DEV) ## Of these, ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

lint-sql: $(DEV) $(JARS) $(CLASSES) ## Of these, sqlfluff
	@$(BIN)/python -c $(SQLFLUFF) lint dbt_project/models dbt_project/tests

bench: $(RUNTIME) $(JARS) $(CLASSES) $(NEEDS_INPUT) ## Measure on a folder of pages: a table, and JSON in bench/
	@$(BIN)/lakehouse bench --input "$${INPUT:-samples}" $(ARGS)

fmt: $(DEV) $(JARS) $(CLASSES) ## Put Python and SQL into shape
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .
	@$(BIN)/python -c $(SQLFLUFF) fix dbt_project/models dbt_project/tests

##@ Look

.PHONY: orders-lab sql docs docs-serve
orders-lab: $(RUNTIME) $(JARS) $(CLASSES) $(NEEDS_INPUT) ## Inspect a file of orders (default: the sample): read modes compared, a report
	@$(BIN)/lakehouse inspect orders "$${INPUT:-$(SAMPLES)}" --out lab/orders --event-log lab/events --force $(ARGS)

sql: $(RUNTIME) ## Ask the lake in SQL, offline and without Spark
	@$(BIN)/lakehouse sql --lake "$$LAKE" $(ARGS)

docs: $(RUNTIME) $(JARS) $(CLASSES) ## Build the site of tables, columns and lineage
	@$(BIN)/lakehouse docs --lake "$$LAKE" $(ARGS)

docs-serve: docs ## Build it and show it in a browser
	@$(BIN)/lakehouse docs --serve --lake "$$LAKE" $(ARGS)

##@ Tidy

.PHONY: clean distclean
clean: ## Remove what was built; lakes, .venv and .jars stay
	@rm -rf dbt_project/target dbt_project/logs logs target site samples lab \
	  spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(wildcard ingest tests) -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## Remove the environment and the jars as well; lakes stay
	@rm -rf .venv .jars .cache
