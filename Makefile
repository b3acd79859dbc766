# Every task is a target; `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo install test check crash planted mutants figures figures-others lab fuzz miri clean

CARGO ?= cargo
MILLPOND = target/release/millpond
DEMO_DIR = millpond-demo-data
DEMO_ROWS = 250000
DEMO_MIB = 250
FIGURES_DIR = millpond-figures-data
FIGURES_GIB = 10

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup:
	@sh scripts/setup.sh

demo: setup ## Run the main job: 60 s of durable updates on a database larger than its pool, then remove its files
	@echo "make demo: building $(MILLPOND); the first time this takes some minutes"
	$(CARGO) build --release --package millpond-cli
	@echo "make demo: loading 4 tables of $(DEMO_ROWS) rows, some $(DEMO_MIB) MiB, into a database with a pool of 64 MiB; finding the"
	@echo "make demo: rate that this machine can bear (15 to 45 s); then 60 s at 80 % of it: less than 3 minutes in all"
	$(MILLPOND) bench --dir=$(DEMO_DIR) --remove --threads=16 --tables=4 --table-size=$(DEMO_ROWS) \
		--buffer-pool-size=64MiB --rate=80% --time=60 oltp_update_index

# A directory whose bin/ the command goes into; cargo's own, if it is not set.
ROOT ?=

install: setup ## Build the command and install it into ~/.cargo/bin (with ROOT=DIR into DIR/bin)
	$(CARGO) install --locked --path crates/cli $(if $(ROOT),--root "$(ROOT)")

# One more than the CPUs: some tests wait for a disk.
test: export RUST_TEST_THREADS ?= $(shell expr $$(nproc) + 1)
test: setup ## Run the tests: units, properties, crash matrix (sampled), command, kill -9 rounds, budgets
	$(CARGO) test --workspace --quiet
	$(CARGO) test --package millpond --test budgets --test memory --release --quiet

# Spelling is checked where codespell is there or can be installed; .codespellrc has the exceptions.
check: setup ## Formatting, spelling, lints, docs: no warning is let through
	@spell=$$(sh scripts/setup.sh codespell); [ -z "$$spell" ] || find . \( -name target -o -name .git \) -prune -o -type f \
		\( -name '*.rs' -o -name '*.md' -o -name '*.sh' -o -name '*.py' -o -name '*.toml' \) -print0 | xargs -0 "$$spell"
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) clippy --package millpond --no-default-features --lib --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

crash: setup ## The whole crash matrix (every I/O boundary), every flipped bit, the larger models, 200 rounds of kill -9, five minutes with transactions
	MILLPOND_FULL=1 $(CARGO) test --package millpond --test it
	MILLPOND_FULL=1 $(CARGO) test --package millpond-models
	$(CARGO) build --release --quiet --package millpond-cli
	$(MILLPOND) crashtest --rounds 200 --seed 1
	$(MILLPOND) crashtest --seconds 300 --transactions --backups --seed 1
	for profile in mysql-5.5 mysql-5.6 mysql-8.0 percona-5.7 percona-8.0; do \
	    $(MILLPOND) crashtest --rounds 30 --seed 1 --profile $$profile || exit 1; done

planted: setup ## Plant one bug at a time; each must be found by a crash test or a model
	sh scripts/planted.sh

MUTANTS ?= 200

# A Python of its own: what it needs must not touch the system's.
mutants: setup ## Try 200 mistakes (MUTANTS) that cargo-mutants makes in store, log, mini-transactions and recovery: hours
	@command -v cargo-mutants >/dev/null 2>&1 || $(CARGO) install --quiet --locked cargo-mutants
	@target/mutants/python/bin/python -c 'import tree_sitter, tree_sitter_rust' 2>/dev/null || { rm -rf target/mutants/python && \
		python3 -m venv target/mutants/python && \
		target/mutants/python/bin/pip install --quiet 'tree-sitter>=0.25,<0.27' 'tree-sitter-rust>=0.24,<0.25'; } || \
		{ echo "make mutants: Python has no venv, or pip no network (apt-get install python3-venv)" >&2; exit 2; }
	target/mutants/python/bin/python scripts/mutants.py $(MUTANTS)

CALM_SECONDS ?= 60

figures: setup ## Figures of reads, durable updates, bulk loads, indexes, inserts, batches, snapshots, transactions, the store, and a limited machine (docs/benchmarks.md); 10 GiB, some 50 minutes
	$(CARGO) build --release --quiet --package millpond-cli
	$(CARGO) build --release --quiet --package millpond-workload --features redb --example batch_figures
	$(CARGO) build --release --quiet --package millpond-workload --example read_figures --example scan_figures \
		--example update_figures --example bulk_figures --example index_figures --example insert_figures --example store_figures \
		--example snapshot_figures --example held_figures --example transaction_figures --example byte_figures --example backup_figures --example small_figures
	target/release/examples/read_figures $(FIGURES_DIR) && rm -r $(FIGURES_DIR)
	target/release/examples/scan_figures $(FIGURES_DIR) && rm -r $(FIGURES_DIR)
	target/release/examples/update_figures $(FIGURES_DIR) 10 $(CALM_SECONDS) && rm -r $(FIGURES_DIR)
	target/release/examples/byte_figures $(FIGURES_DIR)
	target/release/examples/backup_figures $(FIGURES_DIR)
	target/release/examples/small_figures $(FIGURES_DIR)
	target/release/examples/bulk_figures $(FIGURES_DIR)
	target/release/examples/index_figures $(FIGURES_DIR)
	target/release/examples/insert_figures $(FIGURES_DIR)
	target/release/examples/batch_figures $(FIGURES_DIR)
	$(MILLPOND) bench --dir=$(FIGURES_DIR) --remove --threads=2 --time=10 --report-interval=0 bulk_insert
	$(MILLPOND) bench --dir=$(FIGURES_DIR) --remove --tables=1 --table-size=1000000 --threads=4 --time=10 --report-interval=0 \
		random_batches
	target/release/examples/snapshot_figures $(FIGURES_DIR) && rm -r $(FIGURES_DIR)
	target/release/examples/held_figures $(FIGURES_DIR) 20 60
	target/release/examples/transaction_figures $(FIGURES_DIR) && rm -r $(FIGURES_DIR)
	target/release/examples/store_figures $(FIGURES_DIR) $(FIGURES_GIB)
	sh scripts/limited_figures.sh $(FIGURES_DIR)

# RocksDB's checksums of its log use instructions that its build leaves out unless the compiler is told.
figures-others: export CXXFLAGS ?= $(if $(filter x86_64,$(shell uname -m)),-msse4.2 -mpclmul)
figures-others: setup ## Figures beside LMDB, redb, fjall and RocksDB (docs/benchmarks.md); compiles RocksDB, some 30 minutes
	@sh scripts/setup.sh rocksdb
	$(CARGO) build --release --quiet --package millpond-workload --features others --example other_figures
	target/release/examples/other_figures $(FIGURES_DIR)

# The lab says by its exit code whether all claims hold: here that is for the reader of its table to see.
lab: setup ## The stall lab: ten experiments in short form, classic settings beside the default, as text and as lab.html; some 14 minutes
	$(CARGO) build --release --quiet --package millpond-cli
	$(MILLPOND) lab run all --quick --report=lab.html || test $$? -eq 1

FUZZ_SECONDS ?= 30
DECODERS = Superblock Directory MapPage LogFileHeader LogFileLap Group Records PageOps MapRecords \
	PageImage Replay LogScan Recovery Rebuild CatalogEntry Row UndoRecord

# A rustup proxy is needed for `+nightly`; rust-toolchain.toml pins the stable compiler.
fuzz: setup ## Fuzz each decoder for 30 s (FUZZ_SECONDS) with libFuzzer; installs cargo-fuzz, needs a nightly compiler
	@command -v cargo-fuzz >/dev/null 2>&1 || $(CARGO) +nightly install --quiet cargo-fuzz
	$(CARGO) +nightly fuzz build --fuzz-dir fuzz decoders
	for decoder in $(DECODERS); do \
		echo "fuzz: $$decoder"; mkdir -p fuzz/corpus/$$decoder; \
		MILLPOND_DECODER=$$decoder $(CARGO) +nightly fuzz run --fuzz-dir fuzz decoders fuzz/corpus/$$decoder -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=16384 -len_control=0 -rss_limit_mb=2048 -timeout=20 \
			-print_final_stats=1 -verbosity=0 || exit 1; \
	done

# Tree borrows, integers as pointers, garbage at the end: what crossbeam's epochs and parking_lot's threads need.
miri: setup ## Run the tests of base and of the pool's memory under Miri; a few minutes; needs a nightly compiler
	rustup component add --toolchain nightly miri rust-src
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks" \
		$(CARGO) +nightly miri test --package millpond --lib -- base:: pool::

clean: ## Remove build outputs and what the demo left
	$(CARGO) clean
	rm -rf $(DEMO_DIR) $(FIGURES_DIR) millpond-bench-data millpond-crashtest-data millpond-lab-data lab.html
