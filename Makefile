# Everything a developer does here, each in an environment that make sets up.
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
BENCH := .venv-bench
PIP_FLAGS := --quiet --disable-pip-version-check

.DELETE_ON_ERROR:
.PHONY: help demo test test-oldest lint docs bench bench-choice bench-streams torture wheel clean

help:
	@echo "make demo         compute the samples and say how far each result is from its stored value"
	@echo "make test         run the tests with the newest dependencies"
	@echo "make test-oldest  run the tests with the oldest supported dependencies"
	@echo "make lint         ruff and mypy"
	@echo "make docs         regenerate the command reference in README.md"
	@echo "make bench        start-up, memory, speed against TensorFlow, PyTorch and ONNX Runtime, as ratios"
	@echo "make bench-choice every kernel on 300 random problems: how good the plan's choice is"
	@echo "make bench-streams files larger than the memory budget: time and peak, 40 GB of disk"
	@echo "make torture      kill and interrupt jobs at 500 random moments, and look at what is there afterwards"
	@echo "make wheel        build the wheel, install it alone and run a tiny job"
	@echo "make clean        remove environments and caches"

demo: $(VENV)/.installed
	@$(MAKE) --no-print-directory -C samples demo CONVGRAD=../$(VENV)/bin/convgrad PYTHON=../$(VENV)/bin/python

test: $(VENV)/.developed
	$(VENV)/bin/python -m pytest -q $(PYTEST_FLAGS)

test-oldest: $(OLDEST)/.developed
	$(OLDEST)/bin/python -m pytest -q -p no:cacheprovider $(PYTEST_FLAGS)

lint: $(VENV)/.developed
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

docs: $(VENV)/.developed
	$(VENV)/bin/python tests/command_reference.py --write

bench: $(VENV)/.developed $(BENCH)/.installed
	$(VENV)/bin/python tests/bench/startup.py
	$(VENV)/bin/python tests/bench/memory.py
	$(BENCH)/bin/python tests/bench/speed.py $(SPEED_FLAGS)
	$(BENCH)/bin/python tests/bench/jobs.py
	$(BENCH)/bin/python tests/bench/growth.py

bench-choice: $(VENV)/.developed
	$(VENV)/bin/python tests/bench/choice.py $(CHOICE_FLAGS)

bench-streams: $(VENV)/.developed
	$(VENV)/bin/python tests/bench/streams.py $(STREAMS_FLAGS)

torture: $(VENV)/.developed
	$(VENV)/bin/python tests/torture.py $(TORTURE_FLAGS)

wheel: $(VENV)/.developed
	$(VENV)/bin/python tests/bare_install.py

clean:
	rm -rf $(VENV) $(OLDEST) $(BENCH) .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis dist samples/build

# pip learnt dependency groups in 25.1.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@echo "Setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) --upgrade 'pip>=25.1'
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) --editable .
	@touch $@

$(VENV)/.developed: $(VENV)/.installed
	@echo "Setting up $(VENV) for development"
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) --group dev
	@touch $@

# What speed is measured against. Gigabytes.
$(BENCH)/.installed: pyproject.toml
	@echo "Setting up $(BENCH)"
	@$(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip install $(PIP_FLAGS) --upgrade 'pip>=25.1'
	@$(BENCH)/bin/python -m pip install $(PIP_FLAGS) --group bench --editable .
	@touch $@

$(OLDEST)/.developed: pyproject.toml
	@echo "Setting up $(OLDEST)"
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip install $(PIP_FLAGS) --upgrade 'pip>=25.1'
	@$(OLDEST)/bin/python -m pip install $(PIP_FLAGS) --group oldest --editable .
	@touch $@
