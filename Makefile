# The two commands: `make demo` and `make test`. Each makes .venv on its first run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
FIND_EXIT := || test $$? -eq 1

# Else every process of the tests would compile torchlint again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint docs pictures vsix dist gpu-bundle gpu-proof clean

# The folder stays, with the script and the page about it.
demo: $(VENV)/demo.stamp
	@set -e; \
	PATH="$$(cd $(BIN) && pwd):$$PATH"; \
	folder=$$(mktemp -d "$${TMPDIR:-/tmp}/torchlint-demo-XXXXXX"); \
	cp fixtures/scripts/sensor_windows/before.py "$$folder/train.py"; \
	echo "$$ cd $$folder"; cd "$$folder"; \
	echo '$$ torchlint check --select TL108,TL201 train.py'; \
	torchlint check --select TL108,TL201 --output-format concise train.py $(FIND_EXIT); \
	echo; echo '$$ torchlint fix --select TL201 train.py'; \
	torchlint fix --select TL201 train.py $(FIND_EXIT); \
	echo; echo '$$ torchlint verify --select TL108,TL201 --steps 40 --rounds 2 --html verify.html train.py   (10 s to a minute)'; \
	torchlint verify --select TL108,TL201 --steps 40 --rounds 2 --html "$$folder/verify.html" train.py $(FIND_EXIT)

test: lint
	@$(BIN)/torchlint check torchlint rules fixtures/quiet
	@$(BIN)/torchlint check --quiet fixtures/scripts > /dev/null; test $$? -eq 1
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

lint: $(VENV)/test.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m torchlint.docs --check
	@$(BIN)/python -m torchlint.docs --site
	@$(BIN)/zensical build --strict -f build/zensical.toml

# The lists of rules and the picture of the README.
pictures: $(VENV)/test.stamp
	@$(BIN)/python -m torchlint.docs

# The site, in build/site/.
docs: $(VENV)/test.stamp
	@$(BIN)/python -m torchlint.docs --site
	@$(BIN)/zensical build --strict -f build/zensical.toml

# The extension for VS Code, as editors/vscode/torchlint.vsix; needs Node 20 and npm.
vsix:
	@cd editors/vscode; npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; npm run --silent package

# What is committed, from a clone of it: nothing else can get into a release.
dist: $(VENV)/test.stamp
	@set -e; \
	test -z "$$(git status --porcelain)" || { echo "commit first: a release holds what is committed"; exit 1; }; \
	folder=$$(mktemp -d); \
	trap 'rm -rf "$$folder"' EXIT; \
	git clone --quiet . "$$folder/torchlint"; \
	rm -rf dist; \
	python=$$PWD/$(BIN)/python; dist=$$PWD/dist; \
	cd "$$folder/torchlint"; \
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) "$$python" -m hatchling build -d "$$dist" > /dev/null; \
	cd "$$dist"; sha256sum torchlint-*

# Everything for `make gpu-proof` on a machine without a network, for Python 3.12 on Linux.
NEEDS := numpy psutil libcst click packaging pathspec pyyaml
WHEELS := --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64

gpu-bundle:
	@set -e; \
	folder=$$(mktemp -d); \
	trap 'rm -rf "$$folder"' EXIT; \
	mkdir -p dist; \
	git archive --prefix=torchlint/ HEAD | tar -x -C "$$folder"; \
	$(PYTHON) -m pip download --quiet $(WHEELS) -d "$$folder/torchlint/dist/wheels" $(NEEDS); \
	tar -czf dist/gpu-proof.tar.gz -C "$$folder" torchlint; \
	ls -lh dist/gpu-proof.tar.gz

# On the machine with the GPU, whose Python has torch: nothing is installed into it.
gpu-proof:
	@$(PYTHON) -c 'import numpy, psutil, libcst, click, packaging, pathspec, yaml' 2> /dev/null || $(PYTHON) -m pip install --quiet --no-index --find-links dist/wheels --target build/gpu $(NEEDS)
	@PYTHONPATH="$$PWD:$$PWD/build/gpu" $(PYTHON) benchmarks/gpu_proof.py
	@PYTHONPATH="$$PWD:$$PWD/build/gpu" $(PYTHON) benchmarks/evidence.py --device cuda --minutes 3

clean:
	rm -rf $(VENV) dist build

$(VENV)/bin/python:
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torchlint needs Python 3.10 or newer; say which: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)

# hatchling and editables are the build's own needs: installed here so that they are pinned too.
$(VENV)/torch.stamp: constraints.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing torch (200 MB for CPUs; PyPI's build for Linux brings CUDA's libraries, 3 GB more) and torchlint (2 MB)"
	@echo "a Linux machine without a GPU takes the small one with PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
	@$(filter-out --quiet,$(PIP)) torch
	@$(PIP) hatchling editables
	@touch $@

$(VENV)/demo.stamp: $(VENV)/torch.stamp
	@$(PIP) --no-build-isolation -e '.[verify]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/torch.stamp
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@ $(VENV)/demo.stamp
