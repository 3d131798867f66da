#!/usr/bin/env bash
# Runs every fuzz target of this module for the given number of inputs. A time would do as well, but up to Go
# 1.26 a target fails at times for no other reason than that its time ends: https://go.dev/issue/75804.
set -euo pipefail
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "== $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 100x "$package"
	done
done
