package redlockgocron_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	redlockgocron "github.com/quorumlock/redlock/adapters/gocron"
	"github.com/quorumlock/redlock/redlocktest"
)

// Three replicas whose clocks differ run a job that takes no time. Each tick runs once, by whichever Locker.
func TestEachTickRunsOnce(t *testing.T) {
	const ticks = 15
	type replica func(t *testing.T, client *redlock.Client, interval, late time.Duration, b *board)
	plain := func(options ...redlockgocron.LockerOption) replica {
		return func(t *testing.T, client *redlock.Client, interval, late time.Duration, b *board) {
			s := schedule(t, gocron.WithDistributedLocker(newLocker(t, client, options...)))
			_, err := s.NewJob(gocron.DurationJob(interval), gocron.NewTask(b.run), gocron.WithName("job"), at(interval+late))
			require.NoError(t, err)
			s.Start()
		}
	}
	bound := func(t *testing.T, client *redlock.Client, interval, late time.Duration, b *board) {
		s := schedule(t)
		_, err := newLocker(t, client).NewJob(s, gocron.DurationJob(interval), "job",
			func(context.Context, *redlock.Lease) error { b.run(); return nil }, at(interval+late))
		require.NoError(t, err)
		s.Start()
	}
	for name, c := range map[string]struct {
		add      replica
		interval time.Duration
		late     time.Duration // of each replica after the one before
		twice    bool          // ticks do run twice
	}{
		"a Locker":                         {plain(), time.Minute, 2 * time.Second, false},
		"a Locker, at the same moment":     {plain(), time.Minute, 0, false},
		"a Locker with a MinHold":          {plain(redlockgocron.MinHold(25 * time.Second)), time.Minute, 12 * time.Second, false},
		"NewJob, each five minutes":        {bound, 5 * time.Minute, 12 * time.Second, false},
		"NewJob, each two seconds":         {bound, 2 * time.Second, 400 * time.Millisecond, false},
		"NewJob, ten times a second":       {bound, 100 * time.Millisecond, 20 * time.Millisecond, false},
		"without a minimum hold, not so":   {plain(redlockgocron.MinHold(0)), time.Minute, time.Second, true},
		"with one that is too short, no":   {plain(redlockgocron.MinHold(time.Second)), time.Minute, 2 * time.Second, true},
		"further apart than half, neither": {bound, 10 * time.Second, 6 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
				b := newBoard(c.interval)
				for i := range 3 {
					c.add(t, connectTo(t, nodes), c.interval, time.Duration(i)*c.late, b)
				}
				time.Sleep(ticks * c.interval)
				wrong := b.check(ticks)
				if c.twice {
					require.NotEmpty(t, wrong, "the test would not see a second run")
				} else {
					require.Empty(t, wrong)
				}
			})
		})
	}
}

// A job that is refused because of its own minimum hold is told why.
func TestAMinHoldThatIsLongerThanTheIntervalIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		locker := newLocker(t, connectTo(t, nodes), redlockgocron.MinHold(20*time.Second))
		s := schedule(t, gocron.WithDistributedLocker(locker))
		refused := make(chan error, 10)
		_, err := s.NewJob(gocron.DurationJob(10*time.Second), gocron.NewTask(func() {}), gocron.WithName("job"),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err })))
		require.NoError(t, err)
		s.Start()
		err = <-refused
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, "keeps its lock for 10s more: let MinHold be shorter than the interval")
	})
}

// A refusal tells a lock that another has from an outage.
func TestARefusedTickIsToldWhy(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client, other := connectTo(t, nodes), connectTo(t, nodes)
		s := schedule(t)
		refused, ran := make(chan error, 10), make(chan struct{}, 10)
		_, err := newLocker(t, client).NewJob(s, gocron.DurationJob(time.Minute), "job",
			func(context.Context, *redlock.Lease) error { ran <- struct{}{}; return nil },
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err })))
		require.NoError(t, err)
		lease, err := other.Mutex("gocron/job").Acquire(t.Context())
		require.NoError(t, err)
		s.Start()
		require.ErrorIs(t, <-refused, redlock.ErrHeld)
		require.NoError(t, lease.Release(t.Context()))
		<-ran
		nodes.Kill(0)
		nodes.Kill(1)
		require.ErrorIs(t, <-refused, redlock.ErrNoQuorum)
		require.NoError(t, client.Close())
		require.ErrorIs(t, <-refused, redlock.ErrClosed)
	})
}

// A node that stops makes a try slow. Another replica has run the tick meanwhile, and its minimum hold may be over: then a
// grant would run the tick again.
func TestAGrantThatComesLateDoesNotRunTheTickAgain(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		const hold = 300 * time.Millisecond   // of NewJob, for an interval of 600 ms
		random := rand.New(rand.NewPCG(8, 2)) // of this one, a tick ran twice
		var lockers []*redlockgocron.Locker
		for i := range 3 {
			nodes.Delay(i, time.Duration(random.IntN(20))*time.Millisecond)
			lockers = append(lockers, newLocker(t, connectTo(t, nodes), redlockgocron.MinHold(hold)))
		}
		for tick := range 500 {
			var runs, slow atomic.Int64
			var replicas sync.WaitGroup
			for _, locker := range lockers {
				late := time.Duration(random.IntN(50)) * time.Millisecond
				replicas.Go(func() {
					time.Sleep(late)
					begun := time.Now()
					lock, err := locker.Lock(t.Context(), fmt.Sprint("job", tick))
					if time.Since(begun) > hold/2 {
						slow.Add(1)
					}
					if err == nil {
						runs.Add(1)
						_ = lock.Unlock(t.Context())
					} else if !errors.Is(err, redlock.ErrHeld) {
						assert.ErrorIs(t, err, redlock.ErrNoQuorum)
					}
				})
			}
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
			victim := random.IntN(3)
			nodes.Pause(victim)
			time.Sleep(500 * time.Millisecond)
			nodes.Resume(victim)
			replicas.Wait()
			require.LessOrEqual(t, runs.Load(), int64(1), "tick %d, and %d tries were slow", tick, slow.Load())
			time.Sleep(5 * time.Second)
		}
	})
}

func TestUnlockTellsWhatBecameOfTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connectTo(t, nodes)
		locker := newLocker(t, client)
		lock, err := locker.Lock(t.Context(), "a")
		require.NoError(t, err)
		_, err = locker.Lock(t.Context(), "a")
		require.ErrorIs(t, err, redlock.ErrHeld)
		other, err := locker.Lock(t.Context(), "b")
		require.NoError(t, err, "each job has a lock of its own")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, lock.Unlock(ended), "although its context has ended")
		require.NoError(t, lock.Unlock(ended), "again")

		require.NoError(t, client.ForceRelease(t.Context(), "gocron/b"))
		require.ErrorIs(t, other.Unlock(t.Context()), redlock.ErrLost)

		lock, err = locker.Lock(t.Context(), "c")
		require.NoError(t, err)
		nodes.Kill(0)
		nodes.Kill(1)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlock.ErrNoQuorum)

		_, err = locker.Lock(ended, "d")
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A replica that dies in a job is replaced after the TTL.
func TestADeadReplicaIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		dead, alive := connectTo(t, nodes), connectTo(t, nodes)
		s := schedule(t)
		lease, err := dead.Mutex("gocron/job").WithMinHold(5 * time.Second).WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, lease.Valid())
		ran := make(chan time.Time, 100)
		begun := time.Now()
		_, err = newLocker(t, alive).NewJob(s, gocron.DurationJob(3*time.Second), "job",
			func(context.Context, *redlock.Lease) error { ran <- time.Now(); return nil })
		require.NoError(t, err)
		s.Start()
		require.Equal(t, 12*time.Second, (<-ran).Sub(begun).Round(time.Second), "the first tick after 10 s")
	})
}

func TestWhatIsNotAllowedIsToldAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connectTo(t, nodes)
		for _, options := range [][]redlockgocron.LockerOption{{redlockgocron.MinHold(-1)}, {redlockgocron.MinHold(time.Minute)}} {
			_, err := redlockgocron.NewLocker(client, options...)
			require.ErrorIs(t, err, redlock.ErrInvalid)
			require.ErrorContains(t, err, "redlock: invalid: MinHold: ")
		}
		_, err := redlockgocron.NewLocker(nil)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		_, err = redlockgocron.NewElector(redlock.Lock{})
		require.ErrorIs(t, err, redlock.ErrInvalid)
		_, err = redlockgocron.NewElector(client.Mutex("leader").WithTTL(time.Hour))
		require.ErrorIs(t, err, redlock.ErrInvalid)
		_, err = redlockgocron.NewElector(client.Mutex("leader"), redlockgocron.Settle(-1))
		require.ErrorIs(t, err, redlock.ErrInvalid)

		locker, s := newLocker(t, client), schedule(t)
		run := func(context.Context, *redlock.Lease) error { return nil }
		_, err = locker.NewJob(s, gocron.DurationJob(time.Hour), "", run)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		_, err = locker.NewJob(s, gocron.DurationJob(time.Hour), "x", nil)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		_, err = locker.NewJob(s, gocron.DurationJob(0), "x", run)
		require.ErrorIs(t, err, gocron.ErrDurationJobIntervalZero)
		_, err = locker.NewJob(s, gocron.DurationJob(time.Hour), "x", run, gocron.WithName("y"))
		require.NoError(t, err)
		require.Equal(t, "x", s.Jobs()[0].Name(), "the name of the lock")
	})
}

// With a short MaxTTL, the default is as long as there is room for, or an error.
func TestTheDefaultFitsTheClientsMaxTTL(t *testing.T) {
	for maxTTL, fits := range map[time.Duration]bool{2 * time.Second: true, 100 * time.Millisecond: false} {
		bubbleOnce(t, func(t *testing.T, nodes *redlocktest.Nodes) {
			client := connectTo(t, nodes, func(cfg *redlock.Config) { cfg.MaxTTL = maxTTL })
			locker, err := redlockgocron.NewLocker(client)
			if !fits {
				require.ErrorContains(t, err, "redlock: invalid: MinHold: MaxTTL leaves no room for any")
				_, err = redlockgocron.NewLocker(client, redlockgocron.MinHold(0))
				require.NoError(t, err)
				return
			}
			require.NoError(t, err)
			lock, err := locker.Lock(t.Context(), "job")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
}

func bubbleOnce(t *testing.T, test func(t *testing.T, nodes *redlocktest.Nodes)) {
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.Start(t, 3)) })
}

// Schedulers are shut down and clients closed in the middle of everything: for the race detector, and for the test for
// leaked goroutines.
func TestEverythingEndsInTheMiddleOfEverything(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	for round := range 5 {
		client := connectTo(t, nodes)
		locker := newLocker(t, client)
		elector, err := redlockgocron.NewElector(client.Mutex("leader"), redlockgocron.Settle(0))
		require.NoError(t, err)
		s, err := gocron.NewScheduler(gocron.WithStopTimeout(10 * time.Second))
		require.NoError(t, err)
		leads, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocron.WithStopTimeout(10*time.Second))
		require.NoError(t, err)
		var runs atomic.Int64
		for i := range 5 {
			_, err := locker.NewJob(s, gocron.DurationJob(5*time.Millisecond), fmt.Sprint("job ", i),
				func(ctx context.Context, lease *redlock.Lease) error { runs.Add(1); return ctx.Err() })
			require.NoError(t, err)
			_, err = leads.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() { runs.Add(1); _, _ = elector.Lease() }))
			require.NoError(t, err)
		}
		s.Start()
		leads.Start()
		require.Eventually(t, func() bool { return runs.Load() > 20 }, 10*time.Second, time.Millisecond)
		end := []func(){
			func() { require.NoError(t, s.Shutdown()) },
			func() { require.NoError(t, leads.Shutdown()) },
			func() { require.NoError(t, client.Close()) },
			elector.Close,
		}
		var wg sync.WaitGroup
		for i := range end {
			wg.Go(end[(i+round)%len(end)])
		}
		wg.Wait()
	}
}
