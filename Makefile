# `make demo` shows the lock at work with nothing installed but Go. `make test` is what decides a change.

SHELL = bash
.SHELLFLAGS = -eo pipefail -c
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCHSTAT = golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0
ACTIONLINT = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.5.0
APIDIFF = golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
COLLECTOR = go.opentelemetry.io/collector/cmd/builder@v0.120.0
FUZZ ?= 20000x
SEEDS ?= 2000
RUNS ?= 50
# Not watched for races: the Lua interpreter of the embedded servers, which is one goroutine's at a time and takes a third of
# the time of tests in virtual time; the regular expressions and the parser of Go, with which tests read source and documents.
RACE = -race -gcflags=github.com/yuin/gopher-lua/...=-race=false -gcflags=regexp/...=-race=false -gcflags=go/...=-race=false
# Packages whose tests run at once: tests wait more than they compute.
PACKAGES ?= $(shell echo $$((1 + $$(getconf _NPROCESSORS_ONLN))))
BENCH ?= .
COMPARE ?= --out ../docs/performance.md --summary ../README.md
NESTED = $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod))

.PHONY: help demo test fleets lint unit simulate simulate-switches simulate-search nested fuzz stress stress-close bench bench-record chaos \
	compare scoreboard compat consumer golangci workflows vulnerabilities api man traces dashboard

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST) | column -t -l 2 -s ':'

demo: ## five nodes in this process, contenders, kills: no Redis and no Docker needed
	go run ./cmd/redlock demo

# The tests of unit wait more than they compute, so two targets run at once.
test: fleets lint ## everything; installs missing servers and a missing chromium where it may
	@$(MAKE) --no-print-directory -j2 unit simulate simulate-switches nested fuzz
	@.ci/fleets.sh summary

fleets: ## what the tests can use on this machine; REDLOCK_REQUIRE, as in .ci/run, makes them a must
	@.ci/fleets.sh prepare

lint: ## gofmt, go vet, the types on other systems and 32 bits, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	go vet ./...
	go run -C internal/typecheck . $(CURDIR) darwin/amd64 windows/amd64 linux/386
	go run $(STATICCHECK) ./...

unit: ## the tests, with the race detector; and some worlds as a program of 32 bits, where this machine runs one
	go test $(RACE) -count=1 -timeout 30m -p $(PACKAGES) ./...
	if .ci/fleets.sh runs-386; then \
		GOARCH=386 go test -count=1 -run '^TestSimulation$$' -seeds=20 . && \
		GOARCH=386 go test -count=1 -run '^TestScripts' ./internal/embeddedredis; fi

simulate: ## SEEDS=2000 worlds of faults in virtual time, and a tenth as many with minimum holds; a failing seed says how to run it again
	go test -count=1 -timeout 0 -run '^TestSimulation$$' -seeds=$(SEEDS)
	go test -count=1 -timeout 0 -run '^TestSimulation$$' -seeds=$$(($(SEEDS) / 10)) -kind=minhold

simulate-switches: ## each defence off in turn: something breaks, mostly in worlds that are known to show it
	go test -count=1 -timeout 30m -run '^TestSimulation$$' -switches=10000

simulate-search: ## the same without known worlds: how many seeds until something breaks; the tables of docs/safety.md
	go test -count=1 -timeout 60m -run '^TestSimulation$$' -switches=10000 -search

# All three commands use what is compiled for the race detector, so that nothing is compiled twice.
nested: fleets ## the modules beside this one
	@set -e; tools=$$(mktemp -d); trap 'rm -rf $$tools' EXIT; GOBIN=$$tools go install $(STATICCHECK); \
		for dir in $(NESTED); do echo "== $$dir"; (cd $$dir; \
			GOFLAGS="$(RACE)" go vet ./...; GOFLAGS="$(RACE)" $$tools/staticcheck ./...; \
			go test $(RACE) -count=1 -timeout 15m ./...); done

consumer: ## a module outside this repository, with everything in it that can be imported (part of nested)
	cd internal/consumer && go test $(RACE) -count=1 -timeout 5m -v ./...

golangci: ## the linters of .golangci.yml, on every module (CI; the first run compiles them for minutes)
	@set -e; for dir in . $(NESTED); do echo "== $$dir"; \
		(cd $$dir && go run $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...); done

workflows: ## the workflows in .github (CI)
	go run $(ACTIONLINT)

vulnerabilities: ## known vulnerabilities in what each module calls (CI; asks vuln.go.dev)
	@set -e; for dir in . $(NESTED); do echo "== $$dir"; (cd $$dir && go run $(GOVULNCHECK) -test ./...); done

api: ## the exported API beside that of the last release (CI)
	@APIDIFF=$(APIDIFF) .ci/api.sh

fuzz: ## each fuzz target for FUZZ=20000x inputs
	@.ci/fuzz.sh $(FUZZ)

stress: fleets ## every test RUNS=50 times under the race detector while other load keeps all processors busy; RECORD=file goes on from call to call
	go run ./internal/stress -runs $(RUNS) $(if $(RECORD),-record $(RECORD))

stress-close: ## ten minutes of everything at once, with the race detector: clients closed, connections cut, names contended
	go test $(RACE) -count=1 -timeout 20m -v -run '^TestStress$$' -stress=10m .

bench: ## the benchmarks, on five servers of this machine, beside the last recorded run
	go test -run '^$$' -bench '$(BENCH)' -benchtime 1s -count 6 . | tee bench.txt
	go run $(BENCHSTAT) docs/benchmarks.txt bench.txt

bench-record: bench ## and make this run the recorded one
	mv bench.txt docs/benchmarks.txt

compat: ## the tests and four chaos scenarios on every server that Debian has; writes the table of docs/operations.md (some 20 minutes)
	go run ./internal/compat $(COMPAT)

traces: ## a contended run with faults: its spans and metrics through a real OpenTelemetry Collector into reports/ (compiles it at first: minutes)
	@internal/observe/traces.sh $(COLLECTOR)

dashboard: fleets ## a picture of the Grafana dashboard's panels, as Prometheus draws them, in reports/dashboard.png (some 70 s)
	mkdir -p reports
	cd adapters/prometheus && REDLOCK_REQUIRE=prometheus,chromium go test -count=1 -v -run '^TestEveryPanelShowsWhatHappens$$' -picture $(CURDIR)/reports/dashboard.png .

man: ## the manual pages of the command, in man/
	go run ./cmd/redlock man man

CHAOS_KINDS = fair rw semaphore handover election
CHAOS_KINDS_IN = failover,restart-empty,partial-views,clock-ahead

chaos: ## every scenario on real servers and in containers, with reports in reports/ (some 20 minutes)
	go run ./cmd/redlock chaos run --scenario all --subject redlock --fleet process --seconds 5 --out reports/process
	go run ./cmd/redlock chaos run --scenario all --subject redlock --fleet docker --seconds 5 --out reports/docker
	for kind in $(CHAOS_KINDS); do \
		go run ./cmd/redlock chaos run --scenario $(CHAOS_KINDS_IN) --subject redlock-$$kind --fleet process --seconds 5 \
			--out reports/redlock-$$kind || exit; \
	done
	go run ./cmd/redlock chaos matrix --fleet process > reports/matrix.md

scoreboard: ## this library and others in every chaos scenario, into reports/scoreboard.md (more than an hour; goes on where it was broken off)
	mkdir -p reports
	cd compare && go run ./scoreboard --resume ../reports/scoreboard.json --out ../reports/scoreboard.md

compare: ## this library beside others on the same servers, and beside the limit; writes the tables of docs/performance.md and README.md
	cd compare && go run . $(COMPARE)
