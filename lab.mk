# The lab: measurements that need a machine of their own, and the report in a browser. Never a part of `make test`.
# Options go through LAB: make study-cluster LAB="--seconds 1 --out runs"

STUDIES = $(CARGO) run --quiet --release --package dendra-studies --

.PHONY: bench report-look lab-check study-cluster study-members study-engines study-overload yardsticks yardsticks-setup

## bench: measure PUT and GET of a fresh node in two minutes; pages in runs/
bench:
	$(STUDIES) bench $(LAB)

## report-look: draw a sample report and look at it in a headless chromium; pictures in target/report-look
report-look:
	@$(CARGO) run --quiet -p dendra-lab --example report_sample -- target/report-look
	$(CARGO) xtask report-look

## lab-check: the instrument beside wrk, oha and k6 (installed when missing); report in docs/lab
lab-check:
	$(STUDIES) lab-check $(LAB)

## yardsticks-setup: install nginx, redis and webdis from Debian, as root, and leave no service running
yardsticks-setup:
	apt-get update
	apt-get install --yes --no-install-recommends nginx-light redis-server webdis
	if [ -d /run/systemd/system ]; then systemctl disable --now nginx redis-server webdis; fi

## study-cluster: two members, three members: what a hop and a quorum cost; report in docs/lab
study-cluster:
	$(STUDIES) study-cluster $(LAB)

## study-members: members come and go, a cluster at rest, 3 to 20 members; report in docs/lab
study-members:
	$(STUDIES) study-members $(LAB)

## study-engines: YCSB A to F, three members beside etcd and Cassandra; report in docs/lab
study-engines:
	@test -d target/outgrow/cassandra || $(MAKE) outgrow-setup
	$(CARGO) build --release --package dendra --features etcd,cassandra
	$(STUDIES) study-engines --binary target/release/dendra $(LAB)

## study-overload: twice and five times the knee of a share of a core, as root; report in docs/lab
study-overload:
	$(STUDIES) study-overload $(LAB)

## yardsticks: measure one node beside nginx, redis, hyper and the floor; report in docs/lab
# Options for a shorter run: make yardsticks LAB="--rows get --seconds 1 --rounds 2 --out runs"
yardsticks:
	$(STUDIES) yardsticks $(LAB)
