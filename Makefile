# A thin front for CMake's presets. `make` alone says what there is.

JOBS ?= $(shell nproc)
# Tests run beside each other; those labelled stress or external run alone whatever this says.
TEST_JOBS ?= 3
# ON: warnings are errors, as in CI. Other compilers have other warnings.
WEFT_WERROR ?= OFF
# GCC 12's ThreadSanitizer cannot map its shadow where the kernel randomises more than 28 bits.
NO_ASLR := $(if $(shell setarch -R true 2>/dev/null && echo yes),setarch -R)

.DEFAULT_GOAL := help
.PHONY: help setup setup-ci run test soak test-builds test-debug test-asan test-tsan test-aarch64 \
	test-aarch64-core test-clang fuzz torture bench format format-check tidy clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what `make run` and `make test` need and this machine lacks
	@tools/install-deps

setup-ci: ## install what all targets need
	@tools/install-deps --ci

# $(call build,preset[,targets])
define build
cmake --preset $(1) -DWEFT_WERROR=$(WEFT_WERROR)
cmake --build --preset $(1) --parallel $(JOBS) $(if $(2),--target $(2))
endef

run: setup ## build the demo (examples/hello) and run it
	$(call build,release,example_hello)
	build/release/examples/hello

# How long each stress test runs here; more is `make soak`.
test: export WEFT_STRESS_SECONDS ?= 1
test: setup ## build, and run the tests
	$(call build,release)
	ctest --preset release --parallel $(TEST_JOBS)

test-debug: setup ## the same, with assertions on hot paths
	$(call build,debug)
	ctest --preset debug --parallel $(TEST_JOBS)

test-asan: setup ## the same, with AddressSanitizer and UndefinedBehaviorSanitizer
	$(call build,asan)
	ctest --preset asan --parallel $(TEST_JOBS)

test-tsan: setup ## the same, with ThreadSanitizer
	$(call build,tsan)
	$(NO_ASLR) ctest --preset tsan --parallel $(TEST_JOBS)

# GoogleTest's death tests start their own binary anew, which the kernel cannot without the emulator.
AARCH64_EXCEPT := ^stress\.exit_test$$

test-aarch64: setup-ci ## the same, for aarch64 under qemu
	$(call build,aarch64)
	ctest --preset aarch64 --parallel $(TEST_JOBS) -E '$(AARCH64_EXCEPT)'

# What differs between processors: the switch, stacks, the orders of memory, the kernel's calls. The
# whole takes longer to build than everything else together.
AARCH64_CORE := unit_entry_test unit_switch_state_test unit_go_test unit_chan_test unit_mutex_test \
	unit_handoff_test unit_preempt_test unit_net_conn_test unit_net_dial_test unit_os_pipe_test \
	stress_park_test stress_talk_test stress_net_test
AARCH64_CORE_TESTS := ^(unit\.(entry|switch_state|go|chan|mutex|handoff|preempt|net_conn|net_dial|os_pipe)|stress\.(park|talk|net))_test$$

test-aarch64-core: setup-ci ## the tests that say most about aarch64, under qemu
	cmake --preset aarch64 -DWEFT_WERROR=$(WEFT_WERROR)
	cmake --build --preset aarch64 --parallel $(JOBS) --target $(AARCH64_CORE)
	ctest --preset aarch64 --parallel $(TEST_JOBS) -R '$(AARCH64_CORE_TESTS)'

test-clang: setup-ci ## the same, with clang++-19
	$(call build,clang)
	ctest --preset clang --parallel $(TEST_JOBS)

# SOAK=-LE\ stress leaves out what `make test` has run for a second each.
soak: export WEFT_STRESS_SECONDS ?= 30
soak: setup ## what takes too long for `make test`: long stress tests, whole models, each header alone
	$(call build,release)
	cmake --build --preset release --parallel $(JOBS) \
		--target weft_header_check weft_benchmarks weft_torture
	ctest --preset soak --parallel $(TEST_JOBS) $(SOAK)

test-builds: setup-ci ## build the library in the ways its users do
	WEFT_WERROR=$(WEFT_WERROR) tools/check-builds

# Inputs that fail are left in build/fuzz; what is new goes to build/fuzz/corpus.
FUZZ_SECONDS ?= 60
fuzz: setup-ci ## feed the HTTP server random bytes for FUZZ_SECONDS (60)
	$(call build,fuzz,http_fuzz example_hello)
	build/fuzz/examples/hello
	mkdir -p build/fuzz/corpus/http
	cd build/fuzz && tests/fuzz/http_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=8192 \
		-rss_limit_mb=1024 -timeout=10 -print_final_stats=1 -verbosity=1 \
		corpus/http $(CURDIR)/tests/fuzz/corpus/http

# New random programs each time; one that fails is printed with the line that runs it again.
SECONDS ?= 60
torture: setup-ci ## run random programs with weft and with Go for SECONDS (60), and compare
	$(call build,release,weft_torture)
	tests/torture/run --seconds $(SECONDS) $(ARGS)

bench: setup ## measure weft beside other runtimes
	$(call build,release,weft_benchmarks)
	bench/versus/run

format: setup-ci ## format every C++ file
	tools/format

format-check: setup-ci ## fail if a C++ file is not formatted
	tools/format --check

tidy: setup-ci ## run clang-tidy over the tree
	$(call build,clang)
	run-clang-tidy-19 -quiet -j $(JOBS) -p build/clang '^$(CURDIR)/(src|tests|bench|examples)/.*\.cpp$$'

clean: ## remove everything built
	rm -rf build
