package redlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

// A log or a hook that blocks (a full pipe, a slow disk) must not keep a lease or a context alive past its end.
func TestAHookOrALogThatBlocksDelaysNoLease(t *testing.T) {
	for _, which := range []string{"hook", "log"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel() // they wait
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
			other := openDirect(t, f, patient)
			blocked, goOn := make(chan struct{}), make(chan struct{})
			block := sync.OnceFunc(func() { close(blocked); <-goOn })
			holder := open(t, f, func(cfg *redlock.Config) {
				cfg.TTL, cfg.NodeTimeout = 4*time.Second, time.Second
				if which == "hook" {
					cfg.Hooks.Lost = func(redlock.LeaseInfo, error) { block() }
					return
				}
				cfg.Logger = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
					if bytes.Contains(p, []byte("lease lost")) {
						block()
					}
					return len(p), nil
				}), nil))
			})
			defer close(goOn) // before the client is closed
			first, err := holder.Mutex("first").WithMaxHold(200 * time.Millisecond).Acquire(soon(t))
			require.NoError(t, err)
			second, err := holder.Mutex("second").Acquire(soon(t))
			require.NoError(t, err)
			kept, err := other.Mutex("kept").Acquire(soon(t))
			require.NoError(t, err)
			ctx := second.Context()
			<-first.Context().Done()
			<-blocked
			require.NoError(t, second.Extend(soon(t)), "the connections go on")
			for _, n := range f.Nodes() {
				require.NoError(t, n.Cut())
			}
			next, err := other.Mutex("second").Acquire(soon(t))
			require.NoError(t, err)
			require.Error(t, ctx.Err(), "another has the lock, and the former holder's context has not ended")
			require.NoError(t, next.Release(soon(t)))
			require.NoError(t, kept.Release(soon(t)))
			require.NoError(t, f.Heal())
		})
	}
}

// Hooks and the log run one after the other, in the order of the events.
func TestHooksAndTheLogAreInOrder(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	var told []string
	say := func(what string) { told = append(told, what) } // the race detector fails if two run at once
	c := open(t, f, func(cfg *redlock.Config) {
		cfg.Hooks.Acquired = func(redlock.LeaseInfo, time.Duration, int) { say("acquired") }
		cfg.Hooks.Refused = func([]string, error) {
			if !slices.Contains(told, "released") { // later ones come from a busy machine: a round has only 50ms
				say("refused")
			}
		}
		cfg.Hooks.Lost = func(redlock.LeaseInfo, error) { say("lost") }
		cfg.Hooks.Released = func(redlock.LeaseInfo, error) { say("released") }
		cfg.Logger = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("lease lost")) {
				say("logged")
			}
			return len(p), nil
		}), nil))
	})
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	_, err = c.Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, l.Release(soon(t)))
	l, err = c.Mutex("x").WithTTL(200 * time.Millisecond).WithoutRenewal().Acquire(soon(t))
	require.NoError(t, err)
	<-l.Context().Done()
	require.Zero(t, c.Dropped())
	require.Eventually(t, func() bool { return l.Release(soon(t)) != nil }, 5*time.Second, time.Millisecond)
	require.NoError(t, c.Close())
	require.Equal(t, []string{"acquired", "refused", "released", "acquired", "logged", "lost"}, told)
}

// ExtendFailed is called for nodes that say nothing as for those that are known to be away.
func TestAnExtendWithoutAQuorumIsToldHoweverTheNodesAreAway(t *testing.T) {
	for name, away := range map[string]func(*redlocktest.Nodes, int){
		"killed": (*redlocktest.Nodes).Kill, "paused": (*redlocktest.Nodes).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := redlocktest.Start(t, 3)
				var failed []error
				c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: redlock.Hooks{
					ExtendFailed: func(_ redlock.LeaseInfo, err error) { failed = append(failed, err) },
				}})
				require.NoError(t, err)
				defer c.Close()
				l, err := c.Mutex("x").WithoutRenewal().Acquire(t.Context())
				require.NoError(t, err)
				away(nodes, 1)
				away(nodes, 2)
				require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrNoQuorum)
				synctest.Wait()
				require.Len(t, failed, 1)
				require.ErrorIs(t, failed[0], redlock.ErrNoQuorum)

				time.Sleep(l.Remaining())
				require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrLost)
				require.ErrorAs(t, context.Cause(l.Context()), new(*redlock.RoundError), "it says what the nodes said last")
			})
		})
	}
}
