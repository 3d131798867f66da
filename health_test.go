package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// N1, Q1: A server that evicts, or no longer persists, has its vote until the next INFO. That comes within five seconds, however
// patient the client is, and whether it is idle or not.
func TestEachServerIsAskedHowItIsEveryFiveSeconds(t *testing.T) {
	for _, patience := range []time.Duration{nodeTimeout, time.Second, 3 * time.Second, 10 * time.Second} {
		for _, pause := range []time.Duration{2 * time.Minute, 7 * time.Second, 700 * time.Millisecond, 200 * time.Millisecond} {
			t.Run(fmt.Sprintf("NodeTimeout %v, a call every %v", patience, pause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, 3, 1)
					c := w.connect(t, 0, func(cfg *redlock.Config) { cfg.NodeTimeout, cfg.TTL, cfg.MaxTTL = patience, time.Minute, time.Minute })
					c.Status(t.Context())
					var mu sync.Mutex // guards the rest
					last, longest := time.Now(), time.Duration(0)
					var note func()
					note = func() {
						mu.Lock()
						defer mu.Unlock()
						last, longest = time.Now(), max(longest, time.Since(last))
						w.servers[0].between("INFO", note)
					}
					w.servers[0].between("INFO", note)
					for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(pause) {
						_, _ = c.Inspect(t.Context(), "x") // which asks for no INFO
					}
					mu.Lock()
					defer mu.Unlock()
					longest = max(longest, time.Since(last))
					require.LessOrEqual(t, longest, 5*time.Second+10*time.Millisecond)
				})
			})
		}
	}
}
