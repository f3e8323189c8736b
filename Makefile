# Nagaya's targets. `make` builds; README.md has the two targets for newcomers.

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
STAGE = $(DESTDIR)$(PREFIX)

.PHONY: all built deps demo check lint test model check-peers check-install bench span-table reproduce house soak fuzz peers install install-xpmem install-pvm install-ofi install-coll uninstall clean

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
demo: deps
	$(CARGO) build --release
	$(RELEASE)/nagaya-bench demo

# What ships is what is tested: the release build. (`make test` and `make soak` test the
# development build, which has assertions.)
check: deps lint
	$(BUILD_RELEASE)
	$(TEST_RELEASE) --beside "$(MAKE) --no-print-directory model" --profile shipped
	$(MAKE) --no-print-directory check-peers
	scripts/check-install

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
	scripts/check-man

test:
	$(BUILD_DEV)
	CARGO="$(CARGO)" scripts/test

# The part of other projects' test suites that takes a minute: mpi4py's tests from PyPI, without
# and with Nagaya. They must give the same.
check-peers:
	$(BUILD_RELEASE)
	NAGAYA_BIN_DIR=$(abspath $(RELEASE)) scripts/peers --mpi mpich5 --mpi openmpi5 --ranks 2 \
		--mode exec --mode coll --limit 60 mpi4py comm objects p2p

# Every interleaving of the lock-free code, within loom's bounds.
model:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom $(CARGO) test --release \
		-p nagaya-sync -p nagaya-fcp -p nagaya-pvm -p nagaya-ofi \
		--test ring_model --test doorbell_model --test hold_model --test lock_model \
		--test pieces_model --test ticket_model --test window_model --test slots_model \
		--test record_model --test posted_model

# Installs into a scratch directory, builds the examples against that, and runs them.
check-install:
	scripts/check-install

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

# Installs a new build, or without cargo the build of an earlier `make`. (`sudo make install` often
# finds no cargo, which is in the user's home.)
HAS_CARGO := $(shell command -v $(firstword $(CARGO)) 2>/dev/null)
INSTALLED := nagaya libpvas.so libfcp.so libpvas_delegate.so libjia.so libmemop.so libxpmem.so \
	libnagaya_fi.so libnagaya_coll.so libnagaya_traffic.so libpvm3.so libgpvm3.so libfpvm3.a
LACKING = $(firstword $(foreach file,$(INSTALLED),$(if $(wildcard $(BUILT)/$(file)),,$(BUILT)/$(file))))
built: $(if $(HAS_CARGO),all)
	$(if $(HAS_CARGO),,$(if $(LACKING),$(error cannot install: $(LACKING) is not built and $(CARGO) is \
		not in PATH: run `make` first as a user who has cargo, or give CARGO=PATH)))

install: built
	install -d $(STAGE)/bin $(STAGE)/lib/pkgconfig $(STAGE)/include
	install -m 755 $(BUILT)/nagaya $(STAGE)/bin/nagaya
	install -m 755 $(BUILT)/libpvas.so $(STAGE)/lib/libpvas.so.$(VERSION)
	ln -sf libpvas.so.$(VERSION) $(STAGE)/lib/libpvas.so.0
	ln -sf libpvas.so.0 $(STAGE)/lib/libpvas.so
	install -m 755 $(BUILT)/libfcp.so $(STAGE)/lib/libfcp.so.$(VERSION)
	ln -sf libfcp.so.$(VERSION) $(STAGE)/lib/libfcp.so.0
	ln -sf libfcp.so.0 $(STAGE)/lib/libfcp.so
	install -m 755 $(BUILT)/libpvas_delegate.so $(STAGE)/lib/libpvas_delegate.so.$(VERSION)
	ln -sf libpvas_delegate.so.$(VERSION) $(STAGE)/lib/libpvas_delegate.so.0
	ln -sf libpvas_delegate.so.0 $(STAGE)/lib/libpvas_delegate.so
	install -m 755 $(BUILT)/libjia.so $(STAGE)/lib/libjia.so.$(VERSION)
	ln -sf libjia.so.$(VERSION) $(STAGE)/lib/libjia.so.0
	ln -sf libjia.so.0 $(STAGE)/lib/libjia.so
	install -m 755 $(BUILT)/libmemop.so $(STAGE)/lib/libmemop.so.$(VERSION)
	ln -sf libmemop.so.$(VERSION) $(STAGE)/lib/libmemop.so.0
	ln -sf libmemop.so.0 $(STAGE)/lib/libmemop.so
	install -m 644 $(filter-out include/xpmem.h,$(wildcard include/*.h)) $(STAGE)/include/
	for f in pkgconfig/*.pc.in; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' $$f \
			> $(STAGE)/lib/pkgconfig/$$(basename $$f .in); done
	for section in 1 3 7; do \
		install -d $(STAGE)/share/man/man$$section; \
		install -m 644 man/*.$$section $(STAGE)/share/man/man$$section/; done

# XPMEM's library gets its own prefix. It replaces a system's XPMEM only on request: by
# LD_LIBRARY_PATH, by PKG_CONFIG_PATH, or by --with-xpmem=DIR.
XPMEM = $(PREFIX)/lib/nagaya/xpmem
install: install-xpmem
install-xpmem: built
	install -d $(DESTDIR)$(XPMEM)/include $(DESTDIR)$(XPMEM)/lib/pkgconfig
	install -m 644 include/xpmem.h $(DESTDIR)$(XPMEM)/include/
	install -m 755 $(BUILT)/libxpmem.so $(DESTDIR)$(XPMEM)/lib/libxpmem.so.0.0.0
	ln -sf libxpmem.so.0.0.0 $(DESTDIR)$(XPMEM)/lib/libxpmem.so.0
	ln -sf libxpmem.so.0 $(DESTDIR)$(XPMEM)/lib/libxpmem.so
	sed -e 's|@PREFIX@|$(XPMEM)|' message/xpmem/cray-xpmem.pc.in \
		> $(DESTDIR)$(XPMEM)/lib/pkgconfig/cray-xpmem.pc

# The provider for libfabric, in a directory that only FI_PROVIDER_PATH names.
OFI = $(PREFIX)/lib/nagaya/libfabric
install: install-ofi
install-ofi: built
	install -d $(DESTDIR)$(OFI)
	install -m 755 $(BUILT)/libnagaya_fi.so $(DESTDIR)$(OFI)/libnagaya-fi.so

# MPI's collective operations and the count of messages, in a directory that only LD_PRELOAD names.
COLL = $(PREFIX)/lib/nagaya/mpi
install: install-coll
install-coll: built
	install -d $(DESTDIR)$(COLL)
	install -m 755 $(BUILT)/libnagaya_coll.so $(DESTDIR)$(COLL)/libnagaya-coll.so
	install -m 755 $(BUILT)/libnagaya_traffic.so $(DESTDIR)$(COLL)/libnagaya-traffic.so

# PVM's libraries and headers likewise: LD_LIBRARY_PATH and -I select them.
PVM = $(PREFIX)/lib/nagaya/pvm
install: install-pvm
install-pvm: built
	install -d $(DESTDIR)$(PVM)/include $(DESTDIR)$(PVM)/lib $(DESTDIR)$(PVM)/bin
	ln -sf ../../../../bin/nagaya $(DESTDIR)$(PVM)/bin/pvm
	install -m 644 include/pvm3/*.h $(DESTDIR)$(PVM)/include/
	install -m 644 $(BUILT)/libfpvm3.a $(DESTDIR)$(PVM)/lib/
	install -m 755 $(BUILT)/libpvm3.so $(DESTDIR)$(PVM)/lib/libpvm3.so.3
	ln -sf libpvm3.so.3 $(DESTDIR)$(PVM)/lib/libpvm3.so
	install -m 755 $(BUILT)/libgpvm3.so $(DESTDIR)$(PVM)/lib/libgpvm3.so.3
	ln -sf libgpvm3.so.3 $(DESTDIR)$(PVM)/lib/libgpvm3.so

uninstall:
	rm -rf $(DESTDIR)$(XPMEM) $(DESTDIR)$(PVM) $(DESTDIR)$(OFI) $(DESTDIR)$(COLL)
	rmdir $(STAGE)/lib/nagaya 2>/dev/null || true
	rm -f $(STAGE)/bin/nagaya $(STAGE)/lib/libpvas.so* $(STAGE)/lib/pkgconfig/pvas.pc
	rm -f $(STAGE)/lib/libfcp.so* $(STAGE)/lib/pkgconfig/fcp.pc
	rm -f $(STAGE)/lib/libpvas_delegate.so* $(STAGE)/lib/pkgconfig/pvas_delegate.pc
	rm -f $(STAGE)/lib/libjia.so* $(STAGE)/lib/pkgconfig/jia.pc
	rm -f $(STAGE)/lib/libmemop.so* $(STAGE)/lib/pkgconfig/memop.pc
	cd include && for f in *.h; do \
		[ $$f = xpmem.h ] || rm -f $(STAGE)/include/$$f; done
	cd man && for f in *.[137]; do rm -f $(STAGE)/share/man/man*/$$f; done

clean:
	$(CARGO) clean
