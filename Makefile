# Each target installs and builds what it needs first; see README.md. Versions: scripts/versions.env, requirements.lock.
.PHONY: help setup build wheel demo test test-full check docs fuzz bench bench-packages bench-peers bench-scaling bench-team status operators gpu-kernels kernel-counts lint format asan tsan clean

help:
	@echo "make demo    build, then semantic search with MiniLM compiled by zefuse, against eager and Inductor; then SmolLM2 answers a question"
	@echo "make test    build, then every test (what CI runs)"
	@echo "make test-full  torch's operator database against eager, all samples; goes on where it was stopped (SAMPLES=4 or static=0,dynamic=12: of each row at most, OPERATORS=\"sin cos\", MODES=static,dynamic,training,inplace,errors, DTYPES=float32,.., JOBS=1)"
	@echo "make fuzz    random graphs against eager; goes on where it was stopped (GRAPHS=10000 SEED=0 JOBS=1 DEVICE=cpu|gpu COLUMNS=..: some kinds)"
	@echo "make build   install what is missing and build"
	@echo "make wheel   build/wheels/zefuse-*.whl: everything in one file, LLVM among it (TORCH=\"dir dir\": torch packages to compile for, .venv's by default; PYTHON_HEADERS=\"dir dir\": of more Pythons than .venv's)"
	@echo "make docs    build/site: the pages of docs/ as a site, with the references of API and commands; any warning fails"
	@echo "make bench   the benchmark table (PYTHON: another Python with zefuse's wheel, such as one with the newest torch; make status too)"
	@echo "make bench-packages  what it costs until a model runs: packages, first calls, cold and warm (MODELS: such as MiniLM,ResNet-18)"
	@echo "make bench-peers  inference beside every peer at its best: Inductor with frozen weights, with max-autotune, OpenVINO where it is installed (DTYPE=f32|bf16|medium, MODELS=\"zoo\" or \"pitch tabular\": some, ALONE=1: by one thread's processor time, TRAINING=1: steps of training)"
	@echo "make bench-scaling  calls and training steps beside eager with 1, 2, 4, ... threads, on a machine with nothing else to do (CASES=\"BERT-base LSTM/bf16\": some)"
	@echo "make bench-team  what parallel regions of different sizes cost on 4 to 64 threads"
	@echo "make status  docs/status.md: the model zoo (MODELS=\"bert unet\": some rows, TIMES=0: no measuring, TRAINING=0: not of training; 50 minutes at most)"
	@echo "make operators  docs/operators.md: what becomes of each ATen operator"
	@echo "make gpu-kernels  docs/gpu_kernels.md, docs/ptxas.md: what the devices' compilers make of each family of kernels"
	@echo "make kernel-counts  what make test compares each small model's kernels with, written anew (MODELS: some)"
	@echo "make check   all that decides whether a change is good: lint, asan, tsan, test (an hour the first time)"
	@echo "make lint    ruff, mypy, clang-format, clang-tidy (what clang-tidy passed before is not looked at again)"
	@echo "make format  write the formatting that lint asks for"
	@echo "make asan    the C++ tests under AddressSanitizer"
	@echo "make tsan    the C++ tests of runtime and drivers under ThreadSanitizer"
	@echo "make clean   remove build/ (keeps .venv and the caches)"

setup:
	@scripts/setup

build: setup
	@scripts/build

# Only what the demo runs: the tests are half of a whole build.
demo: setup
	@scripts/build zefuse_python
	@.venv/bin/python examples/semantic_search.py
	@.venv/bin/python examples/answer.py

test: build
	@scripts/test

test-full: build
	@.venv/bin/python tests/op_db/op_db.py --samples $(or $(SAMPLES),0) $(if $(MODES),--modes $(MODES)) $(if $(DTYPES),--dtypes $(DTYPES)) --jobs $(or $(JOBS),1) $(OPERATORS)
	@ZEFUSE_TEST_FULL=1 .venv/bin/python -m pytest -q -p no:xdist tests/python/test_growth.py tests/python/test_huge_tensors.py tests/python/test_zoo_c_interface.py tests/python/test_gpu.py

wheel: setup
	@$(if $(PYTHON_HEADERS),ZEFUSE_PYTHON_HEADERS="$(subst $() ,;,$(PYTHON_HEADERS))") scripts/wheel $(TORCH)

docs: build
	@.venv/bin/python -m sphinx -q -b html -W --keep-going -d build/site-cache docs build/site
	@echo "build/site/index.html"

fuzz: build
	@.venv/bin/python tests/fuzz/fuzz.py --graphs $(or $(GRAPHS),10000) --seed $(or $(SEED),0) $(if $(JOBS),--jobs $(JOBS)) $(if $(DEVICE),--device $(DEVICE)) $(if $(COLUMNS),--columns $(COLUMNS))

# What is measured beside Inductor, by another Python that has zefuse's wheel and the newest torch where one is named.
MEASURED_BY := $(or $(PYTHON),.venv/bin/python)

bench: $(if $(PYTHON),,build)
	@$(MEASURED_BY) tests/bench/models.py

bench-packages: build
	@.venv/bin/python tests/bench/packages.py $(if $(MODELS),--models $(MODELS))

bench-peers: build
	@.venv/bin/python tests/bench/peers.py --dtype $(or $(DTYPE),f32) $(if $(ALONE),--alone) $(if $(TRAINING),--training) $(MODELS)

bench-scaling: build
	@.venv/bin/python tests/bench/scaling.py $(CASES)

bench-team: setup
	@scripts/build zefuse_team_bench
	@build/release/tests/bench/primitives/zefuse_team_bench

status: $(if $(PYTHON),,build)
	@$(MEASURED_BY) tests/zoo/status.py $(MODELS) $(if $(filter 0,$(TIMES)),--no-times) $(if $(filter 0,$(TRAINING)),--no-training-times)

operators: build
	@.venv/bin/python scripts/operators.py

gpu-kernels: build
	@.venv/bin/python scripts/gpu_kernels.py

kernel-counts: build
	@.venv/bin/python tests/zoo/counts.py $(MODELS)

lint: build
	@scripts/lint

format: setup
	@scripts/format

asan: setup
	@PRESET=asan scripts/build
	@PRESET=asan scripts/test

tsan: setup
	@PRESET=tsan scripts/build
	@PRESET=tsan scripts/test

# Every part runs even when one before it failed; the last lines say which did.
check: build
	@scripts/check

clean:
	rm -rf build python/zefuse/lib
