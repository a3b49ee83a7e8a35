# Two commands are enough: `make run` and `make test`. Both build .venv on first use; the stamp below
# makes a second run install nothing, until pyproject.toml or constraints.txt changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test test-all lint format bench campaign study docs dist check-dist clean

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

bench: $(STAMP)  ## ratios of times, compared with the last record; make bench RECORD=1 adds one
	$(BIN)/python benchmarks/regression.py $(if $(RECORD),--record)

campaign: $(STAMP)  ## random cases, each judged; continues where the last one ended, for SECONDS
	$(BIN)/python -m campaign --seconds $(or $(SECONDS),3600) --processes $(or $(PROCESSES),2)

# Everything is built anew, except results of notebooks that were executed with the same sources of the library.
docs: $(STAMP)  ## the site, in runs/site; notebooks are executed, and a warning is an error
	rm -rf runs/site
	$(BIN)/sphinx-build -c docs -W --keep-going --fresh-env -j 2 -d runs/site-doctrees . runs/site

# The build backend is that of .venv, pinned; dist/ holds only what was built last.
dist: $(STAMP)  ## a wheel and an sdist, checked
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

check-dist:  ## the wheel of dist/ in an empty environment, used from another folder
	set -e; place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; \
	$(PYTHON) -m venv "$$place/venv"; \
	"$$place/venv/bin/pip" install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl; \
	cd "$$place"; venv/bin/oism demo --output demo; test -s demo/report.html

# The build backend is installed first and build isolation is off, so that it too is a pinned version. azula comes
# without its plugins' torchvision, which would have to be built for the same torch, and breaks diffusers if it is not.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "oism needs Python 3.11 or newer; '$(PYTHON)' is older: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt hatchling hatch-fancy-pypi-readme editables
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	$(PIP) install --quiet --constraint constraints.txt --no-deps azula einops
	@touch $@

clean:
	rm -rf $(VENV) dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
