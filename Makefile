# `make demo` shows the lock at work with nothing installed but Go. `make test` is what decides a change.

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 3s
BENCH ?= .
NESTED = $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod))

.PHONY: help demo test fleets lint unit nested fuzz bench

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' $(MAKEFILE_LIST) | column -t -s ':'

demo: ## five nodes in this process, contenders, kills: no Redis and no Docker needed
	go run ./cmd/redlock demo

test: fleets lint unit nested fuzz ## everything; installs a missing redis-server where it may
	@.ci/fleets.sh summary

fleets: ## what the tests can use on this machine; REDLOCK_REQUIRE=redis,docker makes both a must
	@.ci/fleets.sh prepare

lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

unit: ## the tests, with the race detector
	go test -race -count=1 -timeout 8m ./...

nested: ## the modules beside this one
	@set -e; for dir in $(NESTED); do echo "== $$dir"; \
		(cd $$dir && go vet ./... && go run $(STATICCHECK) ./... && go test -race -count=1 -timeout 4m ./...); done

fuzz: ## each fuzz target for FUZZTIME
	@.ci/fuzz.sh $(FUZZTIME)

bench: ## the benchmarks, on five servers of this machine
	go test -run '^$$' -bench '$(BENCH)' -benchtime 3s .
