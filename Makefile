# Everything a newcomer, a maintainer and CI run. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.headrace-setup

.DEFAULT_GOAL := help
.PHONY: help setup servers lint test fuzz torture demo bench docs lock clean

help:
	@echo "make setup   environment in .venv, from requirements.lock with hashes"
	@echo "make test    setup, the peers the tests talk to, lint, types, import rules, tests"
	@echo "make fuzz    parsers, codecs and socket reads with many more generated inputs (TIMES=30)"
	@echo "make torture kills, power cuts, damage, full disks, absent peers and reloads at length; see docs/durability.md"
	@echo "make demo    receiver, sender and gateway with live figures, for some seconds"
	@echo "make bench   we and the originals side by side, JSON in bench/results/"
	@echo "make docs    write docs/compatibility.md and docs/reference/ anew from the code"
	@echo "make lock    write requirements.lock anew from pyproject.toml"
	@echo "make clean   remove what the targets above made"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

servers:
	scripts/install-servers.sh
	scripts/install-clients.sh

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup servers lint
	$(BIN)/python -m pytest

# What reads bytes and text of others. A failure is kept in .hypothesis/ and comes first in the next run.
TIMES ?= 30
FUZZED := tests/core tests/conf tests/lua/test_lua_receiveuntil.py tests/lua/test_lua_receive_model.py \
  tests/stream/test_stream_preread.py tests/edge/test_edge_uri.py tests/edge/upstream/test_reply.py
fuzz: setup
	HEADRACE_FUZZ=$(TIMES) $(BIN)/python -m pytest -m hypothesis $(FUZZED)

# The numbers: make torture KILLS=1000 AWAY=300; tests/torture/conftest.py and the tests name them.
TORTURE_NUMBERS := KILLS HOP_KILLS RESTARTS REPEAT EVENTS BYTE_STEP CUT_STEP FILLS FAULTS CHUNKS AWAY MESSAGES HOP_KILLS BOMB MILLIONS
torture: setup
	TORTURE=full $(foreach name,$(TORTURE_NUMBERS),$(if $($(name)),TORTURE_$(name)=$($(name)))) \
	  $(BIN)/python -m pytest tests/torture

demo: setup
	$(BIN)/python examples/demo.py

bench: setup servers
	$(BIN)/python bench/run.py

docs: setup
	$(BIN)/python scripts/compatibility.py
	$(BIN)/python scripts/reference.py

# No index URL, link or option of this machine may end in the file: it must install from any mirror.
# pip-compile does not read dependency groups, so the dev group and the build
# requirements go to it as a file of their own.
lock:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools
	mkdir -p build
	$(BIN)/python -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*t["dependency-groups"]["dev"], *t["build-system"]["requires"], sep="\n")' > build/development.in
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-options --no-emit-trusted-host \
	  --output-file requirements.lock pyproject.toml build/development.in

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/results
	rm -rf src/*.egg-info
	find bench examples scripts src tests -name __pycache__ -prune -exec rm -rf {} +
