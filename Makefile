# One door for people: every target sets up what it needs from cargo, a C compiler and make alone.

CARGO ?= cargo
# Where `make run` keeps its data.
DATA  ?= data

.DEFAULT_GOAL := help
.PHONY: help run test demo clean

help: ## show this list
	@printf 'Dendra: a key-value store over plain HTTP.\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nThe data folder of `make run` is ./%s (make run DATA=/elsewhere).\n' '$(DATA)'

run: ## build, then serve http://127.0.0.1:8080 until Ctrl-C
	$(CARGO) build --release --package dendra
	@printf '%s\n' '' \
	  'In another terminal:' \
	  "  curl -X PUT --data-binary 'hello' 'http://127.0.0.1:8080/v0/entity?id=greeting'" \
	  "  curl 'http://127.0.0.1:8080/v0/entity?id=greeting'" \
	  ''
	@exec $(CARGO) run --quiet --release --package dendra -- serve --data '$(DATA)'

test: ## everything that must hold before a change is merged: style, documents, tests
	$(CARGO) xtask ci

demo: ## load a real file tree, kill the node in the middle, prove that nothing is lost
	$(CARGO) xtask demo

clean: ## remove what was built (never data)
	$(CARGO) clean
