# The commands that a person types. Everything else is CMake (CMakePresets.json).
#
#   make demo      dependencies, build, real data, train MNIST, evaluate
#   make test      dependencies, build, the tests that need no cluster: minutes
#   make test-long the rest of them, with more kills, networks, test GPUs, Slurm
#   make build     the programs, in build/bin
#   make install   PREFIX=/usr/local
#   make deb       Debian packages in build/deb: elasticdl-client, elasticdl
#   make lint      formatting, clang's thread-safety analysis, clang-tidy
#   make asan tsan tests under the sanitizers
#   make fuzz      makes up bytes for everything that reads them: MINUTES=10
#   make chaos     random kills, stops and joins: MINUTES=10 SEED=any
#   make page-pictures  the pictures of the page in docs/
#   make testbed   a Kubernetes cluster, a Docker engine and a registry on this
#                  machine (Debian 12, root); make testbed-down
#   make test-kube all tests that need a cluster, on one that comes and goes

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
DATA_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elasticdl/data
CMAKE_FLAGS ?=

.PHONY: all deps deps-dev configure build demo test test-long test-gpu install deb lint format asan asan-ci asan-ci-build tsan \
        bench bench-gpu chaos fuzz clean page-pictures testbed testbed-down test-kube

all: build

deps:
	@scripts/install-deps.sh

deps-dev:
	@scripts/install-deps.sh --dev

# The binary folder remembers its options; a changed one takes effect here.
configure: deps
	@cmake --preset release $(CMAKE_FLAGS) > build-configure.log 2>&1 \
	  || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log

# What a user runs; the tests and benchmarks are built by the targets below.
build: configure
	@cmake --build build -j $(JOBS) --target programs

demo: build
	@DATA_DIR=$(DATA_DIR) scripts/demo.sh

test: configure
	@cmake --build build -j $(JOBS)
	@ctest --test-dir build -j $(JOBS) --output-on-failure --no-tests=error \
	  -LE 'kube|gpu|long'

# More kills, more networks, Slurm, MPI, GPUs on test devices.
test-long: configure
	@cmake --build build -j $(JOBS)
	@ctest --test-dir build -j $(JOBS) --output-on-failure --no-tests=error \
	  -L long

# On a machine with GPUs and a libtorch with CUDA: the worker, the suites of
# communicators with the real NCCL, jobs with kills. Says what was skipped.
test-gpu: configure
	@cmake --build build -j $(JOBS) --target tests_on_gpu
	@scripts/test-gpu.sh build

install: build
	@cmake --build build -j $(JOBS) --target elasticdl_model_pch
	@cmake --install build --prefix $(PREFIX)

# Without tests and benchmarks; dpkg-dev finds the libraries that they depend on.
deb: build
	@cmake --build build -j $(JOBS) --target elasticdl_model_pch
	@cd build && cpack -G DEB
	@ls -l build/deb/*.deb

format:
	@scripts/format.sh

lint: deps-dev
	@scripts/lint.sh

# Every unit and contract test, those of the worker and of models included.
asan: deps-dev
	@cmake --preset asan > /dev/null
	@cmake --build build-asan -j $(JOBS) --target unit_tests
	@ctest --test-dir build-asan -j $(JOBS) --output-on-failure \
	  --no-tests=error -L 'unit|contract'

# A shorter part of it, without libtorch: code that workers, servers and master
# share memory, sockets and files with. CI runs it.
ASAN_CI = checkpoint keep net ps rendezvous
asan-ci-build: deps-dev
	@cmake --preset asan-ci > /dev/null
	@cmake --build build-asan-ci -j $(JOBS) --target $(ASAN_CI:=_tests)

asan-ci: asan-ci-build
	@ELASTICDL_SEEDS=10 ctest --test-dir build-asan-ci -j $(JOBS) \
	  --output-on-failure --no-tests=error \
	  -R '^($(subst $(eval ) ,|,$(ASAN_CI)))/'

# Only tests with threads of our own: TSan does not know the locks inside the
# packaged gRPC and abseil.
tsan: deps-dev
	@cmake --preset tsan > /dev/null
	@cmake --build build-tsan -j $(JOBS) --target thread_tests
	@ctest --test-dir build-tsan -j $(JOBS) --output-on-failure \
	  --no-tests=error -L threads

MINUTES ?= 10
SEED ?=

chaos: configure
	@cmake --build build -j $(JOBS) --target chaos
	@build/tests/integration/chaos --minutes=$(MINUTES) --seed=$(SEED)

fuzz: deps-dev
	@scripts/fuzz.sh $(MINUTES)

page-pictures: deps-dev build
	@build/bin/elasticdl data fetch mnist --output=$(DATA_DIR)/mnist
	@node tests/page/page_test.mjs build/bin --pictures=docs

testbed:
	@scripts/testbed/up.sh

testbed-down:
	@scripts/testbed/down.sh

test-kube: configure
	@cmake --build build -j $(JOBS)
	@DATA_DIR=$(DATA_DIR) scripts/testbed/kube-ci.sh

bench: configure
	@scripts/install-deps.sh --bench
	@cmake --build build -j $(JOBS)
	@DATA_DIR=$(DATA_DIR) benchmarks/run.sh

# On a machine with GPUs; says what it has found.
bench-gpu: configure
	@cmake --build build -j $(JOBS) --target programs elasticdl_model_pch
	@build/bin/elasticdl data fetch mnist --output=$(DATA_DIR)/mnist > /dev/null
	@benchmarks/gpu.py --data $(DATA_DIR)/mnist

clean:
	@rm -rf build build-dev build-asan build-asan-ci build-tsan build-clang build-fuzz
