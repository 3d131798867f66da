#!/usr/bin/env bash
# Runs every fuzz target of this module for the given number of inputs. A time would do as well, but up to Go
# 1.26 a target fails at times for no other reason than that its time ends: https://go.dev/issue/75804.
set -euo pipefail
# By the source: go test -list would compile the tests of every package once more, without the race detector.
for package in $(go list -f '{{.Dir}}' ./...); do
	for target in $(cat "$package"/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do
		echo "== $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 100x "$package"
	done
done
