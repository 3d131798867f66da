package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/compare/internal/limit"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// A bare load only sends the commands, in a loop.
type bare struct {
	loop   *limit.Loop
	done   atomic.Int64 // cycles of single servers, counted while the meter is on
	quorum int
}

func startBare(ctx context.Context, s subject.Subject, servers *Servers, l Load, prefix string, m *meter) (*bare, error) {
	b := &bare{}
	cfg := limit.Config{
		URLs: servers.URLs(), Window: l.Goroutines, Fence: s.Fence,
		Name: func(i int) string { return fmt.Sprintf("%s/%d", prefix, i) },
		Done: func(server int, took time.Duration) {
			if m.on.Load() {
				b.done.Add(1)
			}
			m.count(server, took, took)
		},
	}
	b.quorum = cfg.Quorum()
	loop, err := limit.Start(ctx, cfg)
	b.loop = loop
	return b, err
}

func (b *bare) admit() {}

func (b *bare) stop() error { return b.loop.Stop() }

// cycles returns how many cycles a quorum has completed.
func (b *bare) cycles(int64) float64 { return float64(b.done.Load()) / float64(b.quorum) }
