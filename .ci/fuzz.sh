#!/usr/bin/env bash
# Runs every fuzz target of this module for the given time.
set -euo pipefail
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "== $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$package"
	done
done
