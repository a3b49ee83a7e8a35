# Two commands are enough: `make run` and `make test`. Both build .venv on first use; the stamp below
# makes a second run install nothing, until pyproject.toml or constraints.txt changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test test-all lint format bench study clean

run: $(STAMP)  ## fit a toy distribution without training; a table, a picture, a report
	$(BIN)/oism demo --output runs/demo

# One thread for each of the workers: two that share the cores would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(or $(WORKERS),logical) --dist worksteal --durations 15

test: lint  ## linters, types, unit and integration tests
	$(PYTEST) -m "not slow and not study"

test-all: lint  ## the same with slow tests and the quick forms of the studies
	$(PYTEST)

study: $(STAMP)  ## make study NAME=stein
	$(BIN)/python -m studies $(NAME)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## ratios, side by side in one run
	$(BIN)/python benchmarks/hermite.py
	$(BIN)/python benchmarks/hermite.py --threads 1
	$(BIN)/python benchmarks/moments.py
	$(BIN)/python benchmarks/torus.py
	$(BIN)/python benchmarks/scattered.py
	$(BIN)/python benchmarks/estimator.py
	$(BIN)/python benchmarks/density.py --no-flow --seeds 0

# The build backend is installed first and build isolation is off, so that it too is a pinned version. azula comes
# without its plugins' torchvision, which would have to be built for the same torch, and breaks diffusers if it is not.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "oism needs Python 3.11 or newer; '$(PYTHON)' is older: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt hatchling editables
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	$(PIP) install --quiet --constraint constraints.txt --no-deps azula einops
	@touch $@

clean:
	rm -rf $(VENV) dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
