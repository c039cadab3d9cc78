# The commands of this project. `make test` works on a fresh Debian 12: it installs (as root) or names what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo test lint faults fuzz e2e

# Lint and test share one build: clippy stands in for the compiler of this package alone, and generates code as well.
CARGO := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings cargo

# Everything in one process: see it work in under a minute.
demo:
	.ci/needs build
	cargo run --quiet --locked -- demo

# Unit, property and integration tests, the latter against a real Kafka broker, a real Iceberg REST catalog and a real Kubernetes API server.
test:
	.ci/needs test
	tests/servers/lay kafka catalog s3 readers spark kubernetes >/dev/null
	$(CARGO) test --locked

# The long list of faults: 300 rounds, servers away for minutes, a full disk, a stepped clock. Takes twenty minutes; as root.
faults:
	.ci/needs test
	tests/servers/lay kafka catalog readers >/dev/null
	TIDEMARK_FAULTS=$${TIDEMARK_FAULTS:-5} $(CARGO) test --locked --test tidemark -- --nocapture --include-ignored exactly_once long_faults

# Feeds codecs, decoders and manifests with bytes that the counters of branches choose, FUZZ_SECONDS each; fuzz/run takes names.
fuzz:
	.ci/needs build
	fuzz/run $${FUZZ_SECONDS:-60}

# Whole scenarios with the program as a person runs it, on this machine and, as root, on a Kubernetes with real pods.
e2e:
	e2e/run

.PHONY: sbom
# What a release is made of, in CycloneDX: target/tidemark.cdx.json, every crate that is linked with its version, licence and source.
sbom:
	PATH="$$(tests/servers/lay sbom)/bin:$$PATH" cargo cyclonedx --quiet --format json --spec-version 1.5 --target all --override-filename tidemark.cdx
	mkdir -p target && mv tidemark.cdx.json target/

.PHONY: image
# The image of a release as an OCI archive, target/tidemark.tar, without a container engine. The release build takes long.
image:
	.ci/needs build
	cargo build --release --locked
	e2e/cluster/release target/release/tidemark target/tidemark.tar

# Everything a machine can say without running a test.
lint:
	.ci/needs test
	cargo fmt --check
	"$$(tests/servers/lay deny)/bin/cargo-deny" --locked check bans licenses sources
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	$(CARGO) test --locked --no-run --all-targets
	RUSTDOC="$(CURDIR)/.ci/doc" $(CARGO) test --locked --doc

.PHONY: bench
# The figures of docs/benchmarks.md, each bench a ratio of its own run. Built with optimisation, so the first time takes long.
bench:
	.ci/needs test
	tests/servers/lay kafka kubernetes >/dev/null
	cargo bench --locked --bench ingest
	cargo bench --locked --bench finalization
	cargo bench --locked --bench commits
	cargo bench --locked --bench memory
	cargo bench --locked --bench fleet
