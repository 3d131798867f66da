package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// What people look at has every event that they should look at, and each span is in its caller's. A renewal begins
// within it: nobody waits for its end.
func TestTheRunHasWhatToLookAt(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	r, err := newRun(fleettest.Start(t, fleet.Process, fleet.Options{}), sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		metric.NewMeterProvider())
	require.NoError(t, err)
	require.NoError(t, r.work(t.Context(), 15*time.Second))
	all := spans.GetSpans()
	byID := map[string]tracetest.SpanStub{}
	for _, s := range all {
		byID[s.SpanContext.SpanID().String()] = s
	}
	var seen []string
	for _, s := range all {
		for _, kv := range s.Attributes {
			if kv.Key == "redlock.outcome" {
				seen = append(seen, s.Name+" "+kv.Value.AsString())
			}
		}
		if s.InstrumentationScope.Name == "billing" {
			continue
		}
		parent, ok := byID[s.Parent.SpanID().String()]
		require.True(t, ok, "%s is in no trace", s.Name)
		require.Equal(t, parent.SpanContext.TraceID(), s.SpanContext.TraceID())
		require.False(t, s.StartTime.Before(parent.StartTime), "%s begins before %s", s.Name, parent.Name)
		require.True(t, s.Name == "redlock.renew" || !s.EndTime.After(parent.EndTime), "%s ends after %s", s.Name, parent.Name)
	}
	slices.Sort(seen)
	seen = slices.Compact(seen)
	require.Subset(t, seen, []string{"redlock.acquire ok", "redlock.acquire held", "redlock.acquire no_quorum",
		"redlock.acquire deadline_exceeded", "redlock.attempt held", "redlock.renew ok", "redlock.release ok", "redlock.release lost"})
}
