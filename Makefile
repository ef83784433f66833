# `make test` on a fresh machine with Python 3.11 and pip sets up everything and runs the tests.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# One torch thread per worker: the tests run in several processes.
RUN    := OMP_NUM_THREADS=1 $(BIN)/python

.PHONY: setup demo wheel test test-slow test-reference fuzz check docs format benchmarks clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# The main job on embedded data: eight methods on scikit-learn's handwritten digits, as one table. Longer training is the default
# of `compare`; 350 steps are enough for a first answer on 300 digits.
demo: $(VENV)/.demo
	$(BIN)/pluribus compare --steps 350

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cli]'
	touch $@

# A wheel, installed into a fresh environment and used from there. Other packages are borrowed, after the installation: pip
# must not see the editable one. (A .pth file is not followed by the .pth files of the folder that it names.)
wheel: setup
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/python -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --no-deps build/wheel/*.whl
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > build/wheel/packages
	cp build/wheel/packages "$$(build/wheel/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/borrowed.pth"
	cd build/wheel && venv/bin/python -c "import pluribus; assert '/build/wheel/' in pluribus.__file__, pluribus.__file__"
	cd build/wheel && venv/bin/pluribus --version

test: setup
	$(RUN) -m pytest --numprocesses 2 -m "not slow"

test-slow: setup
	$(RUN) -m pytest --numprocesses 2 -m slow

# Corruptions against the package that published them.
test-reference: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[reference]'
	$(RUN) -m pytest tests/data/test_corruptions.py tests/data/test_corruption_kinds.py

# Random networks, damaged files, random command lines and odd tensors, for hours. Run again, it continues; findings
# are in build/fuzz/summary.json. FUZZ="--minutes 600 --seed 1" runs longer, with other cases.
fuzz: setup
	$(RUN) -m tests.fuzz --out build/fuzz $(FUZZ)

check: setup docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in site/. The variable silences the theme's notice about MkDocs 2, which is not used. With --quiet no
# warning would be counted, and strict would mean nothing.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Most need a folder of data sets, PLURIBUS_DATA: MNIST, Fashion-MNIST, KMNIST, MedMNIST, Tiny ImageNet and UCI.
benchmarks: setup
	$(BIN)/python benchmarks/stacking.py
	$(BIN)/python benchmarks/digits.py
	$(BIN)/python benchmarks/report_page.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/packed_speed.py
	$(BIN)/python benchmarks/packed_uci.py
	$(BIN)/python benchmarks/masksembles_speed.py
	$(BIN)/python benchmarks/layer_ensembles_speed.py
	$(BIN)/python benchmarks/layer_ensembles_memory.py
	$(BIN)/python benchmarks/layer_ensembles_ranking.py --seeds 5
	$(BIN)/python benchmarks/layer_ensembles_twenty.py
	$(BIN)/python benchmarks/patching_speed.py
	$(BIN)/python benchmarks/patching_uci.py
	$(BIN)/python benchmarks/patching_fashion_mnist.py
	$(BIN)/python benchmarks/patching_fashion_mnist.py --epochs 60
	$(BIN)/python benchmarks/patching_fine_tuning.py
	$(BIN)/python benchmarks/relative_shift.py
	$(BIN)/python benchmarks/sae_speed.py
	$(BIN)/python benchmarks/sae_anytime.py
	$(BIN)/python benchmarks/sae_quality.py
	$(BIN)/python benchmarks/defaults.py alphas --seeds 3 --tasks digits
	$(BIN)/python benchmarks/defaults.py widths --seeds 3 --tasks digits
	$(BIN)/python benchmarks/small_images.py ensembles
	$(BIN)/python benchmarks/small_images.py masks
	$(BIN)/python benchmarks/small_images.py patches
	$(BIN)/python benchmarks/small_images.py exits
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/moonshot.py
	$(BIN)/python benchmarks/moonshot_table.py

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
