# One door for people: every target sets up what it needs from cargo, a C compiler and make alone.

CARGO ?= cargo
# Where `make run` keeps its data.
DATA  ?= data
# More options of `dendra serve` for `make run`, for example OPTIONS='--listen 0.0.0.0:8080'.
OPTIONS ?=

.DEFAULT_GOAL := help
.PHONY: help run check test prove soak prove-codecs mutants mutants-setup outgrow-setup outgrow-cassandra demo dist deb prove-deb prove-alerts clean

## help: show this list
help:
	@printf 'Dendra: a key-value store over plain HTTP.\n\n'
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "  make %-17s %s\n", $$1, $$2 }'
	@printf '\nThe data folder of `make run` is ./%s (make run DATA=/elsewhere).\n' '$(DATA)'

## run: build, then serve http://127.0.0.1:8080 until Ctrl-C
run:
	$(CARGO) build --release --package dendra
ifeq ($(strip $(OPTIONS)),)
	@printf '%s\n' '' \
	  'In another terminal:' \
	  "  curl -X PUT --data-binary 'hello' 'http://127.0.0.1:8080/v0/entity?id=greeting'" \
	  "  curl 'http://127.0.0.1:8080/v0/entity?id=greeting'" \
	  ''
endif
	@exec $(CARGO) run --quiet --release --package dendra -- serve --data '$(DATA)' $(OPTIONS)

## check: what a few minutes can tell: style, documents, tests inside of crates, 200 seeds
check:
	$(CARGO) xtask ci check

## test: everything that guards a commit: style, documents, tests of real nodes and clusters
test:
	$(CARGO) xtask ci test

## prove: what takes longer: tests at length, thousands of seeds, planted bugs, the release build
prove:
	$(CARGO) xtask ci prove

## soak: fresh seeds of the simulated cluster, for SOAK_MINUTES or until Ctrl-C
SOAK_MINUTES ?= 0
soak:
	$(CARGO) xtask sim --minutes $(SOAK_MINUTES)

## prove-codecs: each pair of encoder and decoder over CODEC_CASES drawn cases, in about an hour
CODEC_CASES ?= 100000
CODEC_CRATES := base engine node wire archive stores server lab
prove-codecs:
	PROPTEST_CASES=$(CODEC_CASES) $(CARGO) test --release --no-fail-fast --lib --bins --test codecs \
	  $(CODEC_CRATES:%=--package dendra-%) --package dendra --features dendra-stores/etcd any_legal_

## mutants: small changes of the hearts, which tests must notice: a hundredth, each day another one
MUTANTS ?= --shard $(shell expr $$(date +%s) / 86400 % 100)/100
mutants:
	@command -v cargo-mutants > /dev/null || $(MAKE) mutants-setup
	$(CARGO) mutants --output target $(MUTANTS)

## mutants-setup: install cargo-mutants, which `make mutants` needs
mutants-setup:
	$(CARGO) install cargo-mutants --locked

## outgrow-setup: fetch etcd and the jars of Cassandra into target/outgrow, for tests of --store
outgrow-setup:
	@mkdir -p target/outgrow/etcd
	cd target/outgrow && apt-get download etcd-server && dpkg-deb --extract etcd-server_*.deb etcd
	target/outgrow/etcd/usr/bin/etcd --version
	@printf '%s' '<project><modelVersion>4.0.0</modelVersion><groupId>dendra</groupId>' \
	  '<artifactId>outgrow</artifactId><version>1</version><dependencies><dependency>' \
	  '<groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId>' \
	  '<version>5.0.9</version></dependency></dependencies></project>' > target/outgrow/pom.xml
	cd target/outgrow && mvn -q -B dependency:copy-dependencies -DoutputDirectory=cassandra

## outgrow-cassandra: serve in front of a Cassandra that is started for it, until Ctrl-C
outgrow-cassandra:
	@test -d target/outgrow/cassandra || $(MAKE) outgrow-setup
	$(CARGO) build --release --package dendra --features etcd,cassandra
	@trap '' INT; $(CARGO) xtask outgrow-cassandra

## demo: load a real file tree, kill the node in the middle, prove that nothing is lost
demo:
	CARGO='$(CARGO)' scripts/demo.sh

## dist: a static binary for any Linux, with symbols, SBOM and checksums, in target/dist
dist:
	CARGO='$(CARGO)' scripts/dist.sh

## deb: the Debian package of it, in target/dist
deb: dist
	scripts/deb.sh

## prove-deb: install, upgrade and purge the package in a Debian of its own, as root
prove-deb: dist
	scripts/deb.sh try

## prove-alerts: do alerts of deploy/prometheus fire when they should? By promtool, if it is there
PROMTOOL ?= promtool
prove-alerts:
	@if command -v '$(PROMTOOL)' > /dev/null; then \
	  cd deploy/prometheus && '$(PROMTOOL)' test rules dendra.rules.test.yaml; \
	else \
	  echo 'SKIPPED: promtool is missing. Install prometheus, or give PROMTOOL=/path/of/promtool'; \
	fi

## clean: remove what was built (never data)
clean:
	$(CARGO) clean

# Measurements, and the report to be looked at.
-include lab.mk
