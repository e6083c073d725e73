# Included by the Makefile: what a request costs, measured. Nothing here runs in `make test`.
.PHONY: yardsticks yardsticks-setup

## yardsticks: measure one node beside nginx, redis, hyper and the floor; report under docs/lab/
# Options for a shorter run: make yardsticks YARDSTICKS="--rows get --seconds 1 --rounds 2"
yardsticks:
	cargo build --release --package dendra
	cargo build --release --package dendra-bench
	target/release/dendra-bench rows --dendra target/release/dendra $(if $(YARDSTICKS),$(YARDSTICKS),--out docs/lab)

## yardsticks-setup: install nginx and redis from Debian, as root, and leave no service running
yardsticks-setup:
	apt-get update
	apt-get install --yes --no-install-recommends nginx-light redis-server
	if [ -d /run/systemd/system ]; then systemctl disable --now nginx redis-server; fi
