package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// H1, H2: However a lease with a minimum hold ends, the next one begins after the minimum hold, and long before the TTL
// is over.
func TestNobodyHasTheLockBeforeItsMinimumHoldIsOver(t *testing.T) {
	const d = 700 * time.Millisecond
	for name, end := range map[string]func(*testing.T, *redlock.Client, *redlock.Lease){
		"Release": func(t *testing.T, _ *redlock.Client, l *redlock.Lease) {
			require.NoError(t, l.Release(soon(t)))
			require.False(t, l.Valid())
			require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrReleased)
			require.NoError(t, l.Release(soon(t)), "a second release returns what the first did")
		},
		"Close": func(t *testing.T, c *redlock.Client, l *redlock.Lease) {
			require.NoError(t, c.Close())
			require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrClosed)
		},
		"its longest hold": func(t *testing.T, _ *redlock.Client, l *redlock.Lease) {
			<-l.Context().Done()
			require.ErrorIs(t, l.Release(soon(t)), redlock.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
				holder, other := open(t, f), open(t, f)
				lock := holder.Mutex("x", "y").WithMinHold(d)
				if name == "its longest hold" {
					lock = lock.WithMaxHold(50 * time.Millisecond)
				}
				begun := time.Now()
				first, err := lock.Acquire(soon(t))
				require.NoError(t, err)
				end(t, holder, first)
				if early, err := other.Mutex("y").TryAcquire(soon(t)); err == nil { // the machine is busy
					require.GreaterOrEqual(t, time.Since(begun), d)
					require.NoError(t, early.Release(soon(t)))
				} else {
					require.ErrorIs(t, err, redlock.ErrHeld)
				}
				next, err := other.Mutex("y").Acquire(soon(t)) // the TTL is as long as the timeout of soon
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(begun), d)
				require.Greater(t, next.Fence(), first.Fence())
				require.NoError(t, next.Release(soon(t)))
				clears(t, f, "x")
				clears(t, f, "y")
			})
		})
	}
}

// H2: A waiter, in this process or another, learns how much of the minimum hold is left. It does not wait for the TTL.
func TestAWaiterGetsTheLockWhenItsMinimumHoldIsOver(t *testing.T) {
	for _, where := range []string{"here", "in another process"} {
		t.Run(where, func(t *testing.T) {
			onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
				refused := make(chan struct{}, 100)
				holder := open(t, f, func(cfg *redlock.Config) {
					cfg.TTL, cfg.Hooks.Refused = 30*time.Second, func([]string, error) { refused <- struct{}{} }
				})
				waiter := holder
				if where != "here" {
					waiter = open(t, f, func(cfg *redlock.Config) {
						cfg.Hooks.Refused = func([]string, error) { refused <- struct{}{} }
					})
				}
				begun := time.Now()
				l, err := holder.Mutex("x").WithMinHold(500 * time.Millisecond).Acquire(soon(t))
				require.NoError(t, err)
				got := make(chan time.Duration, 1)
				go func() {
					next, err := waiter.Mutex("x").Acquire(soon(t))
					took := time.Since(begun)
					if assert.NoError(t, err) {
						assert.NoError(t, next.Release(soon(t)))
					}
					got <- took
				}()
				<-refused
				<-refused // once before it subscribed, once after
				require.NoError(t, l.Release(soon(t)))
				require.GreaterOrEqual(t, <-got, 500*time.Millisecond)
				clears(t, f, "x")
			})
		})
	}
}

// H1: A process that dies sends nothing. So the nodes know of the minimum hold from the beginning, also where it is
// longer than the TTL, and after a renewal.
func TestACrashKeepsTheMinimumHoldToo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	other := openDirect(t, f)
	for _, renewed := range []bool{false, true} {
		extended := make(chan struct{}, 100)
		holder := open(t, f, func(cfg *redlock.Config) {
			cfg.TTL = 300 * time.Millisecond
			cfg.Hooks.Extended = func(redlock.LeaseInfo, time.Duration, time.Duration) { extended <- struct{}{} }
		})
		begun := time.Now()
		l, err := holder.Mutex("x").WithMinHold(time.Second).Acquire(soon(t))
		require.NoError(t, err)
		if renewed {
			select {
			case <-extended:
			case <-l.Context().Done(): // the machine is busy: a lost lease's release keeps it as well
			}
		}
		require.LessOrEqual(t, l.Remaining(), 300*time.Millisecond, "it is valid for the TTL alone")
		for _, n := range f.Nodes() {
			require.NoError(t, n.Cut())
		}
		next, err := other.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), time.Second)
		require.NoError(t, next.Release(soon(t)))
		require.NoError(t, f.Heal())
		require.NoError(t, holder.Close())
		clears(t, f, "x")
	}
}

// H2: With re-entry, the minimum hold counts from the first lease, and the last release leaves the rest of it.
func TestTheMinimumHoldOfAReentrantLockIsLeftByItsLastRelease(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c := open(t, f)
	lock := c.Mutex("x").Reentrant().WithMinHold(20 * time.Second)
	outer, err := lock.Acquire(soon(t))
	require.NoError(t, err)
	inner, err := lock.Acquire(outer.Context())
	require.NoError(t, err)
	require.NoError(t, outer.Release(soon(t)))
	require.True(t, inner.Valid())
	require.NoError(t, inner.Release(soon(t)))
	state, err := c.Inspect(soon(t), "x")
	require.NoError(t, err)
	require.True(t, state.Held)
	require.Equal(t, inner.Token(), state.Token)
	require.Less(t, state.Remaining, 21*time.Second)
	require.NoError(t, c.ForceRelease(soon(t), "x"))
	clears(t, f, "x")
}

// H2: A release that comes late, or again, must not hold the lock for longer than its minimum hold.
func TestALateReleaseDoesNotMakeTheMinimumHoldLonger(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	const nodeTimeout, d = time.Second, 20 * time.Second
	c := open(t, f, func(cfg *redlock.Config) { cfg.TTL, cfg.NodeTimeout = 4*time.Second, nodeTimeout })
	l, err := c.Mutex("x").WithMinHold(d).Acquire(soon(t))
	require.NoError(t, err)
	acquired := time.Now()
	spread(t, f, "x", l)
	require.NoError(t, f.Nodes()[0].Cut())
	require.NoError(t, l.Release(soon(t)))
	late := 6 * nodeTimeout // longer than the connection's timeout, so that the release is owed, and than what the acquire added
	time.Sleep(late - time.Since(acquired))
	require.NoError(t, f.Nodes()[0].Heal())
	require.Eventually(t, func() bool { return c.Status(soon(t))[0].Connected }, 10*time.Second, time.Millisecond)
	c.Status(soon(t)) // answered after the release, on the same connection
	for _, n := range f.Nodes() {
		since := time.Since(acquired)
		left, err := redis.Int64(tell(t, n, "PTTL", "x"), nil)
		require.NoError(t, err)
		most := d + d/100 + 5*nodeTimeout + 10*time.Millisecond // an acquire may take five times NodeTimeout
		require.LessOrEqual(t, time.Duration(left)*time.Millisecond, most-since, "as long as the acquire said, or less")
	}
}

// A5: An Acquire that returns ErrClosed gave the lock to nobody, so it leaves no minimum hold.
func TestAnAcquireThatFailsKeepsNoMinimumHold(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	open(t, f)
	for _, n := range f.Nodes() {
		require.NoError(t, n.Delay(5*time.Millisecond))
	}
	for i := range 10 {
		c := openFresh(t, f)
		require.NoError(t, c.Mutex("warm").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
		failed := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").WithMinHold(20 * time.Second).Acquire(soon(t))
			failed <- err
		}()
		time.Sleep(time.Duration(2*i) * time.Millisecond) // before, while and after the nodes answer
		require.NoError(t, c.Close())
		if err := <-failed; err == nil {
			require.NoError(t, open(t, f).ForceRelease(soon(t), "x"))
			continue
		}
		clears(t, f, "x")
	}
}

func TestAMinimumHoldMustFitIntoMaxTTL(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c := open(t, f)
	for _, d := range []time.Duration{-time.Second, 0, 30 * time.Second, 1<<63 - 1} {
		_, err := c.Mutex("x").WithMinHold(d).TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrInvalid, d)
		require.ErrorContains(t, err, "WithMinHold")
		require.NotContains(t, err.Error(), "--max-ttl -", "a remedy that overflowed is none")
	}
	for _, lock := range []redlock.Lock{
		c.Mutex("a").WithMinHold(28 * time.Second).WithTTL(time.Second),
		c.Mutex("b").WithTTL(time.Second).WithMinHold(28 * time.Second),
	} {
		l, err := lock.TryAcquire(soon(t))
		require.NoError(t, err)
		require.Less(t, l.Remaining(), time.Second)
		state, err := c.Inspect(soon(t), l.Names()[0])
		require.NoError(t, err)
		require.Greater(t, state.Remaining, 27*time.Second)
	}
}

// H1: An attempt that asks one node first (W3) writes the key there up to a whole NodeTimeout before it writes the
// others.
func TestTheMinimumHoldOutlastsTheSlowestAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atLeast = 3 * time.Second
		w := virtual(t, 3, 2)
		other, c := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, other.Enroll(t.Context()))
		oneFirst := 0
		for i := range 30 {
			name := fmt.Sprint("x", i)
			before, err := other.Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
			_, err = c.Mutex(name).TryAcquire(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld) // so that it asks one node first
			require.NoError(t, before.Release(t.Context()))
			for _, s := range w.servers {
				s.slow(1, nodeTimeout*98/100)
			}
			time.Sleep(100 * time.Millisecond) // so that INFO goes with the acquire (Q1)
			_, err = c.Mutex(name).WithMinHold(atLeast).WithTTL(2 * time.Second).Acquire(t.Context())
			require.NoError(t, err)
			var left []time.Duration
			for _, s := range w.servers {
				if ttl := s.timeToLive(name); ttl > 0 {
					left = append(left, ttl)
				}
			}
			require.GreaterOrEqual(t, len(left), 2)
			require.GreaterOrEqual(t, slices.Min(left), atLeast)
			if slices.Max(left)-slices.Min(left) > nodeTimeout/2 {
				oneFirst++
			}
			for _, s := range w.servers {
				s.slow(1, 0)
			}
			time.Sleep(time.Second)
		}
		require.Positive(t, oneFirst, "no attempt asked one node first")
	})
}

// H1, H2: The nodes keep the lock for a little longer than its minimum hold. So a job runs at each tick if the minimum hold is
// as much shorter than the interval as WithMinHold says, and not if it is only just shorter.
func TestATickRunsIfTheMinimumHoldIsShortEnoughForTheInterval(t *testing.T) {
	const interval = 10 * time.Second
	for name, c := range map[string]struct {
		least time.Duration
		dies  bool // the process that runs the first tick
		runs  string
	}{
		"2% shorter":                             {interval * 98 / 100, false, "xxxx"},
		"half a percent shorter":                 {interval * 995 / 1000, false, "x.x."},
		"a crash, and five NodeTimeouts shorter": {interval*98/100 - 5*nodeTimeout, true, "xxxx"},
		"a crash, and 2% shorter":                {interval * 98 / 100, true, "x.xx"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 2)
				runs := ""
				for i := range c.runs {
					next := time.Now().Add(interval)
					ran, err := all[min(i, 1)].Mutex("job").WithMinHold(c.least).TryDo(t.Context(), func(context.Context, *redlock.Lease) error {
						if i == 0 && c.dies {
							w.dies(t, 0)
						}
						return nil
					})
					require.NoError(t, err)
					runs += map[bool]string{true: "x", false: "."}[ran]
					time.Sleep(time.Until(next))
				}
				require.Equal(t, c.runs, runs)
			})
		})
	}
}

// The error says how long is allowed, and what that is called is allowed; and what MaxTTL would be enough.
func TestAMinimumHoldThatIsTooLongSaysWhatIsAllowed(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c := open(t, f)
	_, err := c.Mutex("x").WithMinHold(4 * time.Minute).TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "give 28.463s or less, or raise MaxTTL on every client of these nodes and, while none holds a lock, "+
		"on the nodes: redlock enroll --change-config --max-ttl 4m4s")
	require.NoError(t, c.Mutex("x").WithMinHold(28463*time.Millisecond).Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
	_, err = c.Mutex("y").WithMinHold(28464 * time.Millisecond).TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrInvalid)
	_, err = c.Mutex("y").WithTTL(time.Minute).TryAcquire(soon(t))
	require.ErrorContains(t, err, "redlock enroll --change-config --max-ttl 1m0s")

	// What the error says works.
	longer := func(cfg *redlock.Config) { cfg.MaxTTL = 4*time.Minute + 4*time.Second }
	require.NoError(t, openFresh(t, f, longer).Enroll(soon(t), redlock.ChangeConfig()))
	require.NoError(t, openFresh(t, f, longer).Mutex("z").WithMinHold(4*time.Minute).Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
}

// R1, H1: With a minimum hold, the keys live longer than a renewal gives. That is no sign that a clock was set back.
func TestANodeThatWasSlowOrSilentCountsDuringTheMinimumHold(t *testing.T) {
	for name, fault := range map[string]func(*testing.T, *redlock.Lease, *link){
		"slow": func(t *testing.T, l *redlock.Lease, _ *link) {
			require.NoError(t, l.Extend(t.Context())) // before the answer to the acquire comes
		},
		"silent": func(_ *testing.T, _ *redlock.Lease, to *link) { to.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 1)
				c := w.connect(t, 0, redlock.AskAll, func(cfg *redlock.Config) { cfg.MaxTTL = 10 * time.Minute })
				require.NoError(t, c.Enroll(t.Context()))
				time.Sleep(10 * time.Second)
				n := w.servers[0]
				n.links[0].hold(replies, +1)
				l, err := c.Mutex("x").WithMinHold(5 * time.Minute).Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				require.Positive(t, n.timeToLive("x"))
				fault(t, l, n.links[0])
				time.Sleep(100 * time.Millisecond)
				n.links[0].hold(replies, -1)
				time.Sleep(4 * time.Minute)
				require.Equal(t, 3, redlock.Proven(l))
				w.servers[1].stop()
				require.NoError(t, l.Extend(t.Context()))
				require.True(t, l.Valid())
			})
		})
	}
}
