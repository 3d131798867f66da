package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// L1: All servers are up, and only what was sent to them is lost: their connections break, or they forgot their scripts. A
// release is sent again at once, so the call awaits that answer. When it returns, no quorum has the keys.
func TestAReleaseThatIsSentAgainIsAwaited(t *testing.T) {
	breaks := func(w *world) {
		for _, s := range w.servers {
			s.links[0].reset()
		}
	}
	for what, happens := range map[string]func(w *world){
		"connections break": breaks,
		"connections have broken": func(w *world) {
			breaks(w)
			synctest.Wait()
		},
		"scripts are forgotten": (*world).forgetScripts,
		"scripts are forgotten and connections break": func(w *world) {
			w.forgetScripts()
			breaks(w)
		},
	} {
		for name, call := range map[string]func(c *redlock.Client, l *redlock.Lease) error{
			"Release": func(_ *redlock.Client, l *redlock.Lease) error { return l.Release(context.Background()) },
			"ReleaseToken": func(c *redlock.Client, l *redlock.Lease) error {
				return c.ReleaseToken(context.Background(), "x", l.Token())
			},
		} {
			for kind, lock := range map[string]func(c *redlock.Client) redlock.Lock{
				"mutex":  func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
				"reader": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
			} {
				if kind == "reader" && name == "ReleaseToken" {
					continue // it does not release a reader
				}
				t.Run(what+"/"+name+"/"+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := virtual(t, 3, 1)
						for _, s := range w.servers {
							s.slow(0, time.Millisecond)
						}
						c := w.connect(t, 0, redlock.AskAll)
						require.NoError(t, c.Enroll(t.Context()))
						l, err := lock(c).WithoutRenewal().Acquire(t.Context())
						require.NoError(t, err)
						happens(w)
						require.NoError(t, call(c, l))
						require.LessOrEqual(t, len(w.having("x")), 1, "no quorum has it")
					})
				})
			}
		}
	}
}

// R3, D1: Servers that forgot a script have not run it. It is sent once more.
func TestAScriptThatWasForgottenIsSentOnceMore(t *testing.T) {
	for name, call := range map[string]func(c *redlock.Client, l *redlock.Lease) error{
		"Extend": func(_ *redlock.Client, l *redlock.Lease) error { return l.Extend(context.Background()) },
		"Detach": func(c *redlock.Client, l *redlock.Lease) error {
			ticket, err := l.Detach(context.Background())
			if err != nil {
				return err
			}
			_, err = c.Adopt(context.Background(), ticket)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 1)
				l, err := all[0].Mutex("x").WithoutRenewal().Acquire(t.Context())
				require.NoError(t, err)
				w.forgetScripts()
				require.NoError(t, call(all[0], l))
			})
		})
	}
}

// L1: A server deleted the key, and its answer was lost. That the release finds no key when it is sent again does not prove
// that the lease was lost.
func TestAReleaseWhoseAnswersWereLostIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		l, err := all[0].Mutex("x").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers {
			s.links[0].hold(replies, 1)
		}
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		synctest.Wait()
		require.Empty(t, w.having("x"))
		for _, s := range w.servers {
			s.links[0].reset()
			s.links[0].hold(replies, -1)
		}
		require.ErrorIs(t, <-released, redlock.ErrNoQuorum)
	})
}

// H2: A release that is sent again gives the key the rest of its minimum hold, and not as much as when it was made.
func TestALateReleaseLeavesTheRestThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 20 * time.Second
		w, all := enrolled(t, 1)
		l, err := all[0].Mutex("x").WithMinHold(d).WithTTL(25 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		acquired := time.Now()
		for _, s := range w.servers {
			s.links[0].hold(requests, 1)
		}
		require.ErrorIs(t, l.Release(t.Context()), redlock.ErrNoQuorum)
		for range 2 { // what is sent again is lost too, the first time
			time.Sleep(5 * time.Second)
			for _, s := range w.servers {
				s.links[0].reset()
			}
		}
		for _, s := range w.servers {
			s.links[0].hold(requests, -1)
		}
		require.Eventually(t, func() bool { return redlock.Owed(all[0], 0)+redlock.Owed(all[0], 1)+redlock.Owed(all[0], 2) == 0 },
			5*time.Second, time.Millisecond)
		all[0].Status(t.Context()) // answered after the releases
		for _, s := range w.servers {
			left := s.timeToLive("x")
			if left <= 0 {
				continue // it was not asked for the lock
			}
			require.LessOrEqual(t, time.Since(acquired)+left, d+d/50)
			require.GreaterOrEqual(t, time.Since(acquired)+left, d)
		}
	})
}
