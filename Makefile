# make demo: the first figure.  make test: everything.  Both install what they need into .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINS := .ci/constraints.txt
COMMA := ,
SPACE := $() $()
# Bytecode is written when a module is first imported: compiling every installed file takes a minute.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --quiet -c $(PINS)
ON_TWO_CORES := -n 2 --dist worksteal
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE # where it is set, every process compiles all that it imports again

.PHONY: demo test unit notebooks test-faults test-wheel test-browser test-cluster test-flower site evidence lab lint clean
.DELETE_ON_ERROR:

demo: $(VENV)/.notebooks
	$(BIN)/fednb notebook fedfft/01_fig1_perturbation_spectra --scale smoke

# Tests leave the runs of whoever runs them alone.
unit test-faults test-wheel test-browser test-cluster test-flower: export FEDNB_STORE := $(CURDIR)/.fednb

test: unit notebooks

unit: $(VENV)/.test
	$(BIN)/python -m pytest -p no:nbmake $(ON_TWO_CORES) tests fednb

# A store of its own: every notebook really runs.
notebooks: $(VENV)/.test
	store=$$(mktemp -d) && trap 'rm -rf "$$store"' EXIT && \
	FEDNB_STORE=$$store $(BIN)/python -m pytest --nbmake --nbmake-timeout=600 --durations=0 $(ON_TWO_CORES) notebooks

# Files, processes and inputs broken on purpose; FAULTS=long tries thousands.
test-faults: $(VENV)/.test
	$(BIN)/python -m pytest -p no:nbmake -m faults $(ON_TWO_CORES) --durations=5 tests/faults

# The built wheel in an environment without this checkout; WHEEL=whole installs its dependencies anew as well.
test-wheel: $(VENV)/.test
	$(BIN)/python -m pytest -p no:nbmake -m wheel --durations=5 tests/wheel

# The explorers in a real browser: an installed Chrome or Chromium, or Debian's, which it installs where it may.
test-browser: $(VENV)/.browser
	$(BIN)/python tests/browser/chromium.py
	$(BIN)/python -m pytest -p no:nbmake -m browser --durations=5 tests/browser

# Grids on a Dask cluster: a scheduler and workers on loopback, some of them lost, slow or with other data.
test-cluster: $(VENV)/.cluster
	$(BIN)/python -m pytest -p no:nbmake -m cluster --durations=5 tests/cluster

# Federations of Flower: a SuperLink and SuperNodes on loopback, some of them killed, some that send nonsense.
test-flower: $(VENV)/.flower
	$(BIN)/python -m pytest -p no:nbmake -m flower -n 2 --dist loadfile --durations=5 tests/flower

# Notebooks of which nothing is kept at smoke scale, then the pages: all others show what is kept, and train nothing.
# Those that fail are told at the end and shown with their error.
site: $(VENV)/.notebooks
	failed=0; $(BIN)/fednb notebook --all --unless-kept --jobs 2 || failed=$$?; [ $$failed -le 1 ] || exit $$failed; \
	$(BIN)/fednb publish --out build/site && exit $$failed

# Counts, verdicts and numbers in README.md and papers/README.md, judged on the results that are kept with the papers.
evidence: $(VENV)/.notebooks
	$(BIN)/python -m fednb.study.evidence --write

lab: $(VENV)/.notebooks
	$(BIN)/fednb lab --to notebooks -- $(LAB)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --verify $$(git ls-files '*.ipynb')
	$(BIN)/pre-commit validate-config
	$(BIN)/python -m fednb.study.evidence --check

clean:
	rm -rf $(VENV) .fednb .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist

# pip is renewed first: the one that comes with Python 3.11 takes three times as long to find and install the rest.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fednb needs Python 3.11 or newer; say which with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip

# One stamp per set of extras, each with those of the sets inside it; a changed pin or dependency installs again.
$(VENV)/.notebooks: EXTRAS = notebooks
$(VENV)/.test: EXTRAS = notebooks test
$(VENV)/.browser: EXTRAS = notebooks test browser
$(VENV)/.dev: EXTRAS = notebooks test browser dev
$(VENV)/.cluster: EXTRAS = notebooks test cluster
$(VENV)/.flower: EXTRAS = notebooks test flower
$(VENV)/.notebooks $(VENV)/.test $(VENV)/.browser $(VENV)/.dev $(VENV)/.cluster $(VENV)/.flower: pyproject.toml $(PINS) | $(BIN)/python
	@echo "installing into $(VENV), a few minutes the first time ..."
	$(PIP) -e '.[$(subst $(SPACE),$(COMMA),$(EXTRAS))]'
	@touch $(addprefix $(VENV)/.,$(EXTRAS))
