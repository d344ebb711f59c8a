# Every target makes its own virtual environment in .venv; nothing outside this folder is touched.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO := studies/demo
# Hundreds of tests start processes, and pytest rewrites every test module: without kept bytecode
# `make test` takes a third more CPU time. It lies in the folders of this checkout.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-more test-all lint docs sbom bench clean

demo: .venv/core
	@if [ -e $(DEMO)/study.yaml ]; then $(BIN)/autorl resume $(DEMO); \
	else $(BIN)/autorl tune examples/demo.yaml --out $(DEMO); fi

test: .venv/dev
	$(BIN)/python -m pytest -n auto -m "not slow and not more"

# Dear cases, as tests/durations.json names them.
test-more: .venv/dev
	$(BIN)/python -m pytest -n auto -m "more and not slow"

test-all: .venv/all
	$(BIN)/python -m pytest -n auto

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as a site that opens from a disk: site/index.html. A broken link fails.
docs: .venv/docs
	$(BIN)/python -m sphinx -b html -W --keep-going -q -c docs -d build/doctrees . site

# What an installation brings, with licences, as a CycloneDX document: build/sbom.json.
# `make sbom EXTRAS=sb3,ray`: with these extras. The tool stands in an environment of its own.
SBOM := build/sbom
sbom:
	rm -rf $(SBOM)
	$(PYTHON) -m venv $(SBOM)/installed
	$(SBOM)/installed/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt ".$(if $(EXTRAS),[$(EXTRAS)])"
	$(SBOM)/installed/bin/python -m pip uninstall --quiet --yes setuptools pip
	$(PYTHON) -m venv $(SBOM)/tool
	$(SBOM)/tool/bin/python -m pip install --quiet --disable-pip-version-check "cyclonedx-bom>=7.0"
	$(SBOM)/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file build/sbom.json $(SBOM)/installed/bin/python

bench: .venv/dev
	$(BIN)/python benchmarks/population.py
	$(BIN)/python benchmarks/population_profile.py
	$(BIN)/python benchmarks/whole_path.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist site

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.venv/docs: .venv/core
	$(PIP) --editable ".[docs]"
	@touch $@

.venv/dev: .venv/core
	$(PIP) --editable ".[dev,docs,sb3,contrib,bo,smac,ray,rlhf,integrations,mlflow,hydra,minigrid]"
	@touch $@

# mlcroissant reads the metadata of the shipped landscapes as their publishers would; flask serves
# MLflow to the test of its tracker; optuna-dashboard shows what is mirrored. RL Baselines3 Zoo asks
# for older versions of what it downloads with: pip finds none that agree, and training needs none.
.venv/all: .venv/dev
	$(PIP) --editable ".[dev,docs,all,atari,box2d,mujoco,morl,pettingzoo,offline]" "mlcroissant>=1.1" pyarrow flask optuna-dashboard
	$(PIP) --no-deps rl_zoo3 huggingface_sb3
	$(PIP) huggingface_hub wasabi seaborn
	@touch $@
