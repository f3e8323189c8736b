# Nagaya's targets. `make` builds; docs/install.md has those for newcomers.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
# The installed build; `dev` is the build that the tests use.
PROFILE ?= release
BUILT := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,release)
# Builds with the tests' features, since otherwise cargo would build everything twice.
BUILD_DEV = $(CARGO) build --workspace --lib --bins --tests
BUILD_RELEASE = $(CARGO) build --release --workspace
# The tests of the release build: NAGAYA_BIN_DIR has what ships, and the tests link the same code.
TEST_RELEASE = NAGAYA_BIN_DIR=$(abspath $(RELEASE)) CARGO="$(CARGO)" scripts/test

.PHONY: all deps demo check lint test model check-peers check-install check-trial bench span-table reproduce house soak fuzz peers install install-debug uninstall dist check-packages clean

all: $(BUILT)/libfpvm3.a
	$(if $(filter dev,$(PROFILE)),$(BUILD_DEV),$(BUILD_RELEASE))

# PVM's Fortran library, in any directory.
%/libfpvm3.a: $(wildcard message/pvm/fortran/*.[ch] include/pvm3/*.h)
	mkdir -p $*/fpvm3
	cd $*/fpvm3 && $(CC) -std=gnu11 -O2 -fPIC -Wall -Wextra -Werror \
		-I$(CURDIR)/include/pvm3 -c $(addprefix $(CURDIR)/,$(wildcard message/pvm/fortran/*.c))
	rm -f $@
	$(AR) rcs $@ $(patsubst message/pvm/fortran/%.c,$*/fpvm3/%.o,$(wildcard message/pvm/fortran/*.c))

# Installs missing packages that the demo, the tests and the benchmarks need.
deps:
	scripts/deps

# The demo: a stock MPI's messages with and without Nagaya.
demo:
	scripts/deps demo
	$(CARGO) build --release
	$(RELEASE)/nagaya-bench demo

# What ships is what is tested: the release build. (`make test` and `make soak` test the
# development build, which has assertions.) End-to-end tests mostly wait, so the processors have time
# for lint and the models meanwhile.
check: deps
	$(CARGO) fmt --all --check
	$(BUILD_RELEASE)
	$(MAKE) --no-print-directory $(RELEASE)/libfpvm3.a
	$(TEST_RELEASE) --idly "$(MAKE) --no-print-directory lint" \
		--idly "$(MAKE) --no-print-directory model" \
		--beside "$(MAKE) --no-print-directory check-install check-trial" --profile shipped
	$(MAKE) --no-print-directory check-peers

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
	scripts/check-man
	scripts/check-python

test:
	$(BUILD_DEV)
	CARGO="$(CARGO)" scripts/test

# The part of other projects' test suites that takes a minute: mpi4py's tests from PyPI, without
# and with Nagaya. They must give the same.
check-peers:
	$(BUILD_RELEASE)
	NAGAYA_BIN_DIR=$(abspath $(RELEASE)) scripts/peers --mpi mpich5 --mpi openmpi5 --ranks 2 \
		--mode exec --mode coll --limit 60 mpi4py comm objects p2p

# The documentation as a site in out/site, with man pages, the C API and the Rust API, and a check of
# all links. Needs mdBook (cargo install mdbook --locked) and mandoc;
# Doxygen and Graphviz are optional.
.PHONY: docs
docs:
	CARGO="$(CARGO)" scripts/docs

# Every interleaving of the lock-free code, within loom's bounds.
model:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom $(CARGO) test --release \
		-p nagaya-sync -p nagaya-fcp -p nagaya-pvm -p nagaya-ofi -p nagaya-outbox \
		--test ring_model --test doorbell_model --test hold_model --test lock_model \
		--test pieces_model --test ticket_model --test window_model --test slots_model \
		--test record_model --test posted_model --test steps_model

# Installs into a scratch directory, builds the examples against that, and runs them.
check-install: $(BUILT)/libfpvm3.a
	scripts/check-install $(if $(filter dev,$(PROFILE)),dev)

# The part of `make check-packages` that needs no other build: packages of the release build, without
# debug information, which run with this machine's glibc. And the interfaces of the libraries.
check-trial: $(RELEASE)/libfpvm3.a
	scripts/check-abi $(RELEASE)
	scripts/check-portable
	scripts/dist --trial $(RELEASE)
	@# 77: not root.
	DIST=$(TARGET)/trial scripts/check-packages deb rpm tarball wheel || \
		[ $$? = 77 -a -z "$$NAGAYA_TESTS_NO_SKIP" ]

bench: all
	scripts/deps bench
	$(RELEASE)/nagaya-bench all

# Some 60 programs of others, alone and on two nodes of `nagaya span`: worst first.
span-table:
	$(BUILD_RELEASE)
	scripts/deps programs
	bench/span_table.py --rounds $(or $(ROUNDS),3)

# The figures of the Ainori paper in the simulator, and page messages of real runs, into out/.
reproduce: deps
	$(BUILD_RELEASE)
	$(RELEASE)/nagaya-bench ainori

# The drawing of the crates in docs/house.svg, and the row of the table in docs/house.md.
house:
	$(CARGO) run --quiet --bin house -- . "The house" docs/house.svg

# Runs too long for `check`: all tests of the development build, SOAK_MINUTES of chaos and churn,
# CHAOS_ROUNDS jobs of each kind with a process that is killed or stopped, larger models of the
# consistency protocol, SOAK_PROGRAMS random programs, SIMULATION_SEEDS jobs in simulated time,
# millions of litmus tests, and the tests of the crates under two sanitizers.
soak: deps
	$(BUILD_DEV)
	CARGO="$(CARGO)" scripts/test
	NAGAYA_SOAK_MINUTES=$(or $(SOAK_MINUTES),30) $(CARGO) test -p nagaya-tests --test soak -- --ignored --nocapture
	NAGAYA_CHAOS_ROUNDS=$(or $(CHAOS_ROUNDS),1000) $(CARGO) test -p nagaya-tests --test kills --test dsm_chaos -- --nocapture
	NAGAYA_CHAOS_ROUNDS=$(or $(CHAOS_ROUNDS),1000) $(CARGO) test -p nagaya-tests --test pvm -- chaos:: --nocapture
	$(CARGO) test -p nagaya-tests --test span_programs -- --ignored --nocapture
	$(CARGO) test --release -p nagaya-coherence --test scope_model --test sequential_model -- --ignored --nocapture
	NAGAYA_SEEDS=$(or $(SIMULATION_SEEDS),1000000) $(CARGO) test --release -p nagaya-net -p nagaya-node --test simulation -- --nocapture
	NAGAYA_SEEDS=$(or $(SIMULATION_SEEDS),1000000) $(CARGO) test --release -p nagaya-server -p nagaya-launch --lib -- server:: nodes::
	$(CARGO) run --release -p nagaya -- sim --soak $(or $(SOAK_PROGRAMS),1000000)
	scripts/sanitize address
	scripts/sanitize thread
	@# All targets together take NAGAYA_SOAK_MINUTES on the processors of this machine.
	@minutes=$${NAGAYA_SOAK_MINUTES:-$(or $(SOAK_MINUTES),30)}; count=$$(ls fuzz/corpus | wc -l); \
		seconds=$$((minutes * 60 * $$(nproc) / count)); \
		scripts/fuzz --seconds $$((seconds > 0 ? seconds : 1))

# The fuzz targets under libFuzzer, each for FUZZ_SECONDS: FUZZ_TARGETS='elf smaps' for some of them,
# FUZZ='--jobs 1 --keep' for options (scripts/fuzz --help).
fuzz:
	scripts/fuzz $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS)) $(FUZZ) $(FUZZ_TARGETS)

# Other projects' test suites, with and without Nagaya: SUITE=mpich PART=pt2pt for some of them,
# PEERS='--mpi mpich5 --resume' for options (scripts/peers --help). All take several hours.
peers: all
	scripts/deps
	NAGAYA_BIN_DIR=$(abspath $(BUILT)) scripts/peers $(PEERS) $(SUITE) $(PART)

# Installs the existing build, without any compiler. PREFIX, DESTDIR, BINDIR, LIBDIR, INCLUDEDIR,
# DATADIR, MANDIR, PKGCONFIGDIR, CMAKEDIR and PYTHONDIR (Python's modules; none if empty) set the
# places. Files are stripped; `make install-debug` installs their debug information beside them.
INSTALL = BUILT="$(BUILT)" VERSION="$(VERSION)" DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" \
	BINDIR="$(BINDIR)" LIBDIR="$(LIBDIR)" INCLUDEDIR="$(INCLUDEDIR)" DATADIR="$(DATADIR)" \
	MANDIR="$(MANDIR)" PKGCONFIGDIR="$(PKGCONFIGDIR)" CMAKEDIR="$(CMAKEDIR)" \
	PYTHONDIR="$(PYTHONDIR)" packaging/install

install:
	@$(INSTALL) install

install-debug:
	@$(INSTALL) debug

uninstall:
	@$(INSTALL) uninstall

# Packages into dist/: deb, rpm, tarball and wheel, for glibc 2.28 and newer (RELEASING.md).
dist:
	scripts/deps dist
	scripts/dist

# Installs each package in a clean root, uses it there, and removes it.
check-packages: dist
	scripts/check-packages

clean:
	$(CARGO) clean
