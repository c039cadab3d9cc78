# The commands of this project. `make test` works on a fresh Debian 12: it installs (as root) or names what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: test lint

# Lint and test share one build: clippy stands in for the compiler of this package alone, and generates code as well.
CARGO := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings cargo

# Unit, property and integration tests, the latter against a real Kafka broker and a real Iceberg REST catalog.
test:
	.ci/needs test
	tests/servers/lay kafka catalog readers >/dev/null
	$(CARGO) test --locked

# Everything a machine can say without running a test.
lint:
	.ci/needs test
	cargo fmt --check
	"$$(tests/servers/lay deny)/bin/cargo-deny" --locked check bans licenses sources
	$(CARGO) test --locked --no-run
	RUSTDOC="$(CURDIR)/.ci/doc" $(CARGO) test --locked --doc
