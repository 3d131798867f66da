package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// The operator is cut off from one node, and far from another one. A renewal comes between the two releases that arrive: it is
// extended by a quorum, and plants the key where it was gone (R2).
func TestALeaseThatARenewalTakesBackIsReleasedByForceAgain(t *testing.T) {
	calls := map[string]func(context.Context, *redlock.Client, *redlock.Lease) error{
		"ForceRelease": func(ctx context.Context, c *redlock.Client, _ *redlock.Lease) error { return c.ForceRelease(ctx, "x") },
		"ReleaseToken": func(ctx context.Context, c *redlock.Client, l *redlock.Lease) error {
			return c.ReleaseToken(ctx, "x", l.Token())
		},
	}
	for call, release := range calls {
		for renewals, want := range map[int]error{1: nil, 100: redlock.ErrNoQuorum} {
			t.Run(call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, all := enrolled(t, 2)
					time.Sleep(10 * time.Second)
					l, err := all[0].Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Extend(t.Context()))
					synctest.Wait()
					require.Len(t, w.having("x"), 3)
					w.servers[2].links[1].hold(requests, +1)
					defer w.servers[2].links[1].hold(requests, -1)
					w.servers[1].links[1].lag[requests].Store(int64(40 * time.Millisecond))
					released := make(chan error, 1)
					go func() { released <- release(t.Context(), all[1], l) }()
					for ended := false; !ended; {
						select {
						case err = <-released:
							ended = true
						case <-time.After(time.Millisecond):
							if renewals > 0 && len(w.having("x")) == 2 { // one of the two was released
								require.NoError(t, l.Extend(t.Context()))
								renewals--
							}
						}
					}
					if want != nil {
						require.ErrorIs(t, err, want)
						require.ErrorContains(t, err, "its holder goes on, and takes it back")
						require.True(t, l.Valid())
						return
					}
					require.NoError(t, err)
					time.Sleep(20 * time.Second)
					require.False(t, l.Valid())
					require.Empty(t, w.having("x"))
				})
			})
		}
	}
}
