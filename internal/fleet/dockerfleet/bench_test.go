//go:build unix

package dockerfleet_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func BenchmarkStart(b *testing.B) {
	for _, kind := range fleet.Kinds() {
		b.Run(string(kind), func(b *testing.B) {
			fleettest.Require(b, kind)
			for b.Loop() {
				f, err := fleet.Start(context.Background(), kind, fleet.Options{})
				require.NoError(b, err)
				b.StopTimer()
				require.NoError(b, f.Close())
				b.StartTimer()
			}
		})
	}
}

func BenchmarkPing(b *testing.B) {
	for _, kind := range fleet.Kinds() {
		for _, links := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s links=%v", kind, links), func(b *testing.B) {
				conn := dial(b, fleettest.Start(b, kind, fleet.Options{Nodes: 1, Links: links}).Nodes()[0])
				for b.Loop() {
					_, err := conn.Do("PING")
					require.NoError(b, err)
				}
			})
		}
	}
}
