# The commands for developers. `make` without a target lists them.

CARGO ?= cargo
PROFILE ?= dev
TARGET ?= http1
SECONDS ?= 60
PACKAGE_PROFILE ?= dist
# Tests that look at when requests reach a site go before other work on the machine, if this user may ask for that.
FIRST := $(shell [ "$$(nice -n -10 nice 2>/dev/null)" = -10 ] && echo nice -n -10)
# Most tests wait, for a process or a clock.
export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
FROM ?= target
IMAGE ?= tidegate
DOCKER ?= docker

.PHONY: help tools build test test-clients test-peers test-python python-tools wheel lint-python packaging-tools deb tarball static test-deb release-version release-files image publish-pypi publish-page publish-crate publish-image bench-scrapy demo bench bench-cooldown bench-detect bench-gate bench-yield soak fuzz fmt lint doc deny ci

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 16

tools: ## install the programs that the tests need, and list them
	@integration-tests/clients/install.sh

build: ## build the workspace (PROFILE=release for an optimised one)
	$(CARGO) build --workspace --profile $(PROFILE)

test: tools build ## run every test; installs redis-server, curl, valgrind and the Python clients if they are missing
	$(FIRST) $(CARGO) test --workspace --no-fail-fast --profile $(if $(filter dev,$(PROFILE)),test,$(PROFILE))

test-clients: build ## test with every client, Chromium too; installs wget, Node, Go, Java and Chromium if they are missing
	@integration-tests/clients/install.sh --all
	$(FIRST) $(CARGO) test -p integration-tests --test real_clients --test status_page --test https_clients --no-fail-fast \
		--profile $(if $(filter dev,$(PROFILE)),test,$(PROFILE))

test-peers: tools build ## run other projects' servers and test suites against the proxy (SUITES="curl testssl"); installs what is missing
	@integration-tests/clients/install.sh --peers
	$(CARGO) test -p integration-tests --test differential --no-fail-fast -- --nocapture
	@integration-tests/suites/run.py $(SUITES)

python-tools:
	@python/install-tools.sh

wheel: python-tools ## the Python packages, with the program inside, into target/wheels (PACKAGE_PROFILE=release for a quick one; ZIG=1 for old systems)
	ZIG=$(ZIG) python/build.sh $(PACKAGE_PROFILE)

test-python: build lint-python ## the Python packages in fresh virtual environments: the wheel, Scrapy, pytest
	@python/build.sh dev target/python-test
	@python/test.sh target/python-test

lint-python: python-tools ## ruff and mypy over python/
	target/python-tools/bin/ruff format --check python
	target/python-tools/bin/ruff check python
	MYPYPATH=python:python/scrapy-tidegate target/python-tools/bin/mypy -p tidegate -p scrapy_tidegate
	MYPYPATH=python:python/scrapy-tidegate target/python-tools/bin/mypy python/tests

packaging-tools:
	@docker/packaging/install-tools.sh

deb: packaging-tools ## the Debian package, into target/packages (PACKAGE_PROFILE=release for a quick one)
	docker/packaging/build.sh deb $(PACKAGE_PROFILE)

tarball: ## the archive that `cargo binstall` fetches from a release, into target/packages
	docker/packaging/build.sh tarball $(PACKAGE_PROFILE)

static: ## the same archive with a static program (musl), which runs on any Linux with this processor
	@docker/packaging/install-tools.sh --static
	docker/packaging/build.sh static $(PACKAGE_PROFILE)

test-deb: build packaging-tools ## install, start, upgrade, remove and purge the Debian package in a scratch root
	@docker/packaging/test-deb.sh

release-version: ## check that all packages, the changelog and TAG=v1.2.3 agree on the version
	@docker/packaging/release.sh version $(TAG)

release-files: ## sort built packages (FROM=target) for PyPI and the release page, with checksums and notes
	@docker/packaging/release.sh files $(FROM)

image: ## the container image IMAGE=tidegate, from the source or from PACKAGE=target/packages/... (needs docker, or DOCKER=podman, or buildah)
	$(DOCKER) build -f docker/Dockerfile $(if $(PACKAGE),--build-arg FROM=package --build-arg PACKAGE=$(PACKAGE)) -t $(IMAGE) .

publish-pypi: python-tools ## upload FROM=release/pypi, sorted by release-files (DRY_RUN=1 in these four: upload nothing)
	@docker/packaging/release.sh publish-pypi $(FROM)

publish-page: ## make the release page TAG=v1.2.3 from FROM=release/github (needs gh)
	@docker/packaging/release.sh publish-page $(FROM) $(TAG)

publish-crate: ## upload the crate
	@docker/packaging/release.sh publish-crate

publish-image: ## tag the image with TAG=v1.2.3 and push it (needs docker, or DOCKER=podman, or buildah)
	@DOCKER="$(DOCKER)" docker/packaging/release.sh publish-image $(IMAGE) $(TAG)

demo: ## half a minute on the terminal: a site that blocks fast crawlers, two members, a few workers
	$(CARGO) build --quiet --release -p tidegate -p integration-tests --bins
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/demo

bench: ## CPU, latency and memory compared with a bare hyper proxy and the installed ones (4 minutes per part; PART="c64 pages")
	$(CARGO) build --profile dist -p tidegate -p integration-tests --bin tidegate --bin bench --features tidegate/jemalloc
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/dist/bench $(PART)

bench-cooldown: ## how long requests still reach a site after it trips a cooldown, and how fast the news is (50 trips)
	$(CARGO) build --quiet --release -p tidegate -p integration-tests --bins
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/bench_cooldown

bench-detect: ## precision and recall over a folder of saved pages: make bench-detect DIR=pages [STATUS=200] [SINCE=v0.1.0] [WITHOUT=vendor]
	$(CARGO) build --quiet --release -p integration-tests --bin bench_detect
	$(if $(SINCE),git show $(SINCE):config/signatures.yaml >target/signatures-since.yaml)
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/bench_detect $(DIR) $(if $(STATUS),--status $(STATUS)) \
		$(if $(SINCE),--since target/signatures-since.yaml) $(if $(WITHOUT),--without $(WITHOUT))

bench-gate: ## grants/s and CPU per grant on one Redis, compared with a bare EVALSHA loop; held requests (PART=grants, held, cluster)
	$(CARGO) build --quiet --release -p tidegate -p integration-tests --bin tidegate --bin bench_gate --features tidegate/jemalloc
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/bench_gate $(PART)

bench-yield: ## good pages under several policies, against five kinds of walls; ARGS=families: documented ones, ARGS="real 60": real processes
	$(CARGO) build --quiet --release -p tidegate -p integration-tests --bin tidegate --bin bench_yield
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/bench_yield $(ARGS)

bench-scrapy: ## two sites in one Scrapy crawl, one of which cools down; after `make test-python` (4 minutes)
	@$(firstword $(wildcard target/python-test-3.1*/bin/python)) python/tests/two_sites.py

soak: tools ## a fleet of three under load and faults for MINUTES=5, then MUTATIONS=100000 of requests, and a report (SEED= repeats one)
	$(CARGO) build --quiet --release -p tidegate -p integration-tests --bins
	@$(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/soak

# The flags are unstable, hence the variable. No sanitizer is used, because Tidegate has no unsafe code.
# libFuzzer's `main` does not ignore SIGPIPE, and `connection` writes to sockets that the peer has closed.
fuzz: ## libFuzzer on TARGET=http1 for SECONDS=60 (needs cargo-fuzz)
	@mkdir -p integration-tests/fuzz/corpus/$(TARGET)
	trap '' PIPE; cd integration-tests && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run -s none $(TARGET) fuzz/corpus/$(TARGET) fuzz/seeds/$(TARGET) \
		-- -max_total_time=$(SECONDS)

fmt: ## format the code
	$(CARGO) fmt --all

lint: ## formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p integration-tests --test real_clients --test status_page -- -D warnings

doc: ## the crate's documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

deny: ## licences, advisories, bans and sources of the dependencies (needs cargo-deny)
	$(CARGO) deny check

ci: ## what continuous integration runs
	@.ci/run
