# `make` lists the targets. Needs Python 3.11; scripts/install.sh builds .venv, scripts/java_home.sh finds Java 17.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help install run test check mcgrad bench-billion clean distclean

CONFIG ?= configs/flights.yaml
TESTS ?= tests
WORKERS ?= 2
export PYTHON

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## build .venv from requirements.lock; nothing to do when it is up to date
	@scripts/install.sh

run: install ## run all of AdaCalib on the flights of 2013 (or CONFIG=configs/other.yaml)
	@JAVA_HOME="$$(scripts/java_home.sh)" && export JAVA_HOME && .venv/bin/adacalib run --config $(CONFIG)

# A file's tests stay in one process: they share what its fixtures have made.
test: install ## run the tests (or TESTS=tests/cells) in WORKERS=2 processes
	@JAVA_HOME="$$(scripts/java_home.sh)" && export JAVA_HOME && \
		.venv/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(TESTS)

check: install ## ruff, ruff format, mypy --strict on adacalib
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

SEEDS ?= 1 2 3 4 5
mcgrad: install .venv-mcgrad/installed ## hold AdaCalib against MCGrad (CONFIG=configs/cvr_like.yaml SEEDS="1 2 3 4 5")
	@JAVA_HOME="$$(scripts/java_home.sh)" && export JAVA_HOME && .venv/bin/python benchmarks/versus_mcgrad.py \
		--config $(CONFIG) $(addprefix --seed ,$(SEEDS)) --json runs/versus_mcgrad/$(notdir $(basename $(CONFIG))).json

# An environment of its own, of plain pins: what MCGrad needs does not fit what AdaCalib needs.
.venv-mcgrad/installed: benchmarks/mcgrad.lock
	@"$${PYTHON:-python3.11}" -m venv --clear .venv-mcgrad
	@.venv-mcgrad/bin/pip install --quiet --no-deps -r benchmarks/mcgrad.lock
	@touch $@

ROWS ?= 10000000 100000000 1000000000
bench-billion: install ## what each stage costs at 10 million, 100 million and 1 billion rows (50 GB of disk; ROWS=...)
	@JAVA_HOME="$$(scripts/java_home.sh)" && export JAVA_HOME && .venv/bin/python benchmarks/billion.py \
		--rows $(ROWS) --json runs/billion.json

clean: ## remove runs and caches
	@rm -rf runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and .venv-mcgrad
	@rm -rf .venv .venv-mcgrad
