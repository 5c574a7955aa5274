# SPDX-License-Identifier: Apache-2.0
# A thin front to CMake. `make help` lists the targets.
.DEFAULT_GOAL := build
SHELL   := /bin/bash
BUILD   ?= build
PREFIX  ?= /usr/local
DEMO    ?= demo.mp4
PROMPT  ?= A red circle moves to the right on a black background.
TSAN_BUILD ?= build-tsan
# Where no GPU is at hand to run them, kernels for GPUs are compiled for one architecture, except by `make install`.
CUDA_QUICK ?= $(if $(wildcard /dev/nvidiactl /dev/dxg),OFF,ON)
CTEST   := ctest --output-on-failure --no-tests=error -j5 # tests/CMakeLists.txt says how many places a test takes

.PHONY: help dependencies build demo check check-long check-gpu check-sanitized bench asan tsan guide install format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

dependencies: ## install the Debian packages that are missing
	@tools/install_dependencies.sh

build: dependencies ## the two libraries and the program, in build/
	@cmake --preset default -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX) -DITHACA_CUDA_QUICK=$(CUDA_QUICK) >/dev/null
	@cmake --build $(BUILD)

demo: build ## a video from the small model kept here
	$(BUILD)/ithaca generate --model models/shapes --prompt "$(PROMPT)" --seed 6 --output $(DEMO)
	@echo "The video is $(abspath $(DEMO))"

check: build check-sanitized ## build and run every test; the tests of the attention library under sanitizers first
	@set -o pipefail; (cd $(BUILD) && $(CTEST)) | tests/summary.sh $(BUILD)

check-gpu: build ## the tests of the module for NVIDIA GPUs, on this machine's GPU
	@cd $(BUILD) && $(CTEST) -L gpu

check-sanitized: dependencies
	@cmake --preset asan -B build-check-asan -DITHACA_ENGINE=OFF >/dev/null
	@cmake --build build-check-asan
	@cd build-check-asan && $(CTEST) -LE tree -E '@module|accuracy_fixed_m|device_wisdom' # code that other tests run, too
	@$(MAKE) --no-print-directory tsan TSAN_BUILD=build-check-tsan TSAN_FLAGS=-DITHACA_ENGINE=OFF TSAN_TESTS='-E "accuracy|no_keys|fixed_m|bias_values|device_wisdom"' # the threads are those of other tests

check-long: build ## 1,200 random problems of up to 4,096 rows under random plans; 20,000 inputs for the fuzzer's probe; 40 plans x 1,000 faults; 100 plans on processes; the models under every instruction set; more of everything over MPI
	@cd tests && ITHACA_PROBLEMS=1200 ../$(BUILD)/test_accuracy && ITHACA_PROBES=20000 ../$(BUILD)/test_fuzz && \
	ITHACA_FAULT_PLANS=40 ITHACA_FAULTS=1000 ../$(BUILD)/test_faults && ITHACA_FAULT_PLANS=100 ../$(BUILD)/test_processes && \
	ITHACA_GOLDEN_RUNS=all ../$(BUILD)/test_pipeline_device && ITHACA_REFUSALS=all OMP_WAIT_POLICY=passive ../$(BUILD)/test_refused_run
	@cd $(BUILD) && $(CTEST) -C long -L cpu && ITHACA_KERNEL_STEP=1 $(CTEST) -R test_aarch64
	@cd tests && ITHACA_STRANGE=all bash cli/test_cli_options.sh ../$(BUILD) && ITHACA_SIGNALS=27 ITHACA_SIDE=512 bash cli/test_cli_signals.sh ../$(BUILD)
	@cd tests && for kind in openmpi mpich; do ITHACA_BUILD=$$(realpath ../$(BUILD)); \
	for run in "bash mpi/large.sh" "env ITHACA_MPI_FAULTS=500 bash mpi/test_mpi_faults.sh" \
	"env ITHACA_MPI_STARTS=all bash mpi/test_mpi_start_faults.sh" \
	"env ITHACA_HOSTS_CUTS=50 bash mpi/test_mpi_hosts.sh" "env ITHACA_MPI_SHAPES=all bash mpi/test_mpi_program.sh" \
	"env ITHACA_MPI_PLANS=400 bash mpi/test_mpi_bits.sh" \
	"env ITHACA_MPI_SHAPES=2,1;1,2;1,3;5,1;2,3,2;1,5 bash mpi/test_mpi_suite.sh"; do \
	$$run $$ITHACA_BUILD $$kind || [ $$? = 77 ] || exit 1; done; done

asan: dependencies ## every test under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan >/dev/null
	@cmake --build build-asan
	@cd build-asan && $(CTEST)

# clang with libomp and Archer: gcc's OpenMP is not instrumented and gives false alarms.
tsan: dependencies ## the ranks, attention and the engine on ranks under ThreadSanitizer
	@cmake --preset tsan -B $(TSAN_BUILD) $(TSAN_FLAGS) >/dev/null
	@cmake --build $(TSAN_BUILD) --target tsan_tests
	@cd $(TSAN_BUILD) && OMP_TOOL_LIBRARIES=libarcher.so \
	TSAN_OPTIONS="ignore_noninstrumented_modules=1 $$TSAN_OPTIONS" $(CTEST) -L tsan $(TSAN_TESTS)

bench: build ## load, text, per step and decode of the small model; attention and product kernels, linear layers
	@cmake --build $(BUILD) --target bench
	@$(BUILD)/ithaca bench generate --model models/shapes --negative "" --steps 8 --precision f32 --repeat 5
	@for program in $(BUILD)/bench_*; do echo "== $$program"; $$program || exit 1; done

guide: ## the guide as HTML pages, in site/
	@command -v cmark-gfm >/dev/null || PACKAGES=cmark-gfm tools/install_dependencies.sh
	@tools/make_guide.sh site site

install: CUDA_QUICK = OFF
install: build ## into PREFIX (/usr/local): program, libraries, headers, pkg-config and CMake files, man pages
	@cmake --install $(BUILD)

format: ## clang-format over every C and CUDA file
	@git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format -i

clean: ## remove the build folders
	rm -rf $(BUILD) build-asan build-tsan build-check-asan build-check-tsan
