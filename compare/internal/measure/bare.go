package measure

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/compare/internal/limit"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// A bare load only sends the commands, in a loop.
type bare struct {
	loop *limit.Loop
	done []atomic.Int64 // cycles by server, counted while the meter is on
}

func startBare(ctx context.Context, s subject.Subject, servers *Servers, l Load, prefix string, m *meter) (*bare, error) {
	b := &bare{done: make([]atomic.Int64, len(servers.Nodes()))}
	loop, err := limit.Start(ctx, limit.Config{
		URLs: servers.URLs(), Window: l.Goroutines, Fence: s.Fence,
		Name: func(i int) string { return fmt.Sprintf("%s/%d", prefix, i) },
		Done: func(server int, took time.Duration) {
			if m.on.Load() {
				b.done[server].Add(1)
			}
			m.count(server, took, took)
		},
	})
	b.loop = loop
	return b, err
}

func (b *bare) admit() {}

func (b *bare) stop() error { return b.loop.Stop() }

// cycles returns how many cycles a majority has completed. Each server has its own pace.
func (b *bare) cycles(int64) float64 {
	counts := make([]int64, len(b.done))
	for i := range b.done {
		counts[i] = b.done[i].Load()
	}
	slices.Sort(counts)
	return float64(counts[(len(counts)-1)/2])
}
