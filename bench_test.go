package redlock_test

import (
	"context"
	"testing"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func BenchmarkCycle(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	c := open(b, f)
	ctx := context.Background()
	m := c.Mutex("bench")
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.TryAcquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
