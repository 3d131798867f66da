#!/usr/bin/env bash
# traces.sh BUILDER: a contended run with faults, whose spans and metrics a real OpenTelemetry Collector writes to
# reports/traces.jsonl and reports/metrics.jsonl. BUILDER is the module of the collector's builder. What it builds is
# kept in the user's cache.
set -euo pipefail
cd "$(dirname "$0")"
export REPORTS=$PWD/../../reports
export DIST_OUTPUT_PATH=${XDG_CACHE_HOME:-$HOME/.cache}/redlock-collector-${1##*@}
mkdir -p "$REPORTS" "$DIST_OUTPUT_PATH"
if [ ! -x "$DIST_OUTPUT_PATH/collector" ]; then
	echo "building a collector: some minutes" >&2
	go run "$1" --config builder.yaml
fi
rm -f "$REPORTS"/{traces,metrics}.jsonl
"$DIST_OUTPUT_PATH/collector" --config file:collector.yaml 2>"$REPORTS/collector.log" &
collector=$!
trap 'kill "$collector" 2>/dev/null || true' EXIT
for ((i = 0; i < 100; i++)); do
	grep -q 'Everything is ready' "$REPORTS/collector.log" && break
	sleep 0.2
	kill -0 "$collector" || { cat "$REPORTS/collector.log"; exit 1; }
done
OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 go run .
kill -INT "$collector"
wait "$collector"
trap - EXIT
cd "$REPORTS"
for outcome in ok held no_quorum lost; do
	echo "spans with the outcome $outcome: $(grep -o "\"redlock.outcome\",\"value\":{\"stringValue\":\"$outcome\"}" traces.jsonl | wc -l)"
done
ls -l traces.jsonl metrics.jsonl
