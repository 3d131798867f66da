package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// isClosed reports whether the channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// closedAfter is how long it takes until the channel is closed.
func closedAfter(c <-chan struct{}) time.Duration {
	began := time.Now()
	select {
	case <-c:
	case <-time.After(5 * time.Minute):
	}
	return time.Since(began)
}

// waits has the client wait for the lock until the returned function is called.
func waits(t *testing.T, c *redlock.Client, name string, more ...string) (stop func()) {
	return waitsToGet(t, c.Mutex(name, more...))
}

func waitsToGet(t *testing.T, lock redlock.Lock) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if l, err := lock.Acquire(ctx); err == nil {
			_ = l.Release(context.WithoutCancel(ctx))
		}
	}()
	return func() { cancel(); <-done }
}

func TestAHolderIsToldThatSomebodyWaits(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	for name, test := range map[string]struct {
		mute       bool // the holder's user may use no channel
		own        bool // the waiter is in the holder's process
		before     bool // it waits before the holder asks
		withoutAny bool // nobody waits
		fixed      bool // the lease is not renewed
		fair       bool // the waiter waits in order of arrival
		names      []string
		within     time.Duration
	}{
		"by a message":                    {within: 6 * roundTrip}, // the waiter is refused, subscribes, and is refused once more
		"of one that waited before":       {before: true, within: roundTrip},
		"of one in the same process":      {own: true, within: 2 * roundTrip},
		"of one in the same process, too": {own: true, before: true, within: 0},
		"of a fair one, without channels": {own: true, fair: true, mute: true, fixed: true, within: 2 * roundTrip},
		"also if it is not renewed":       {fixed: true, within: 6 * roundTrip},
		"of the second name":              {names: []string{"y"}, within: 6 * roundTrip},
		"without channels, by a renewal":  {mute: true, within: 10*time.Second/3 + 2*roundTrip},
		"without channels, at once":       {mute: true, before: true, within: roundTrip},
		"not, if nobody waits":            {withoutAny: true, within: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				if test.mute {
					w.has.mute = 1
				}
				holder, waiter := w.connect(t, 0), w.connect(t, 1, redlock.LostPoll(time.Hour))
				require.NoError(t, holder.Enroll(t.Context()))
				waiter.Status(t.Context())
				for _, s := range w.servers {
					s.slow(0, roundTrip)
					s.slow(1, roundTrip)
				}
				if test.own {
					waiter = holder
				}
				lock := holder.Mutex("x", test.names...)
				if test.fixed {
					lock = lock.WithoutRenewal()
				}
				l, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				name := "x"
				if test.names != nil {
					name = test.names[0]
				}
				var wanted <-chan struct{}
				stop := func() {}
				if test.before {
					stop = waits(t, waiter, name)
					time.Sleep(4 * time.Second)
				}
				wanted = l.Wanted()
				if !test.before {
					time.Sleep(time.Second)
					require.False(t, isClosed(wanted), "nobody waits")
					_, err := waiter.Mutex(name).TryAcquire(t.Context())
					require.ErrorIs(t, err, redlock.ErrHeld)
					time.Sleep(time.Second)
					require.False(t, isClosed(wanted), "a try does not wait")
					if !test.withoutAny {
						lock := waiter.Mutex(name)
						if test.fair {
							lock = lock.Fair()
						}
						stop = waitsToGet(t, lock)
					}
				}
				require.LessOrEqual(t, closedAfter(wanted), test.within)
				require.Equal(t, wanted, l.Wanted(), "the same channel")
				require.Equal(t, !test.withoutAny, isClosed(wanted))
				require.NoError(t, l.Release(t.Context()))
				stop()
			})
		})
	}
}

// Every holder of a lock that several share is told, by a message: these leases are not renewed.
func TestAllWhoShareALockAreToldThatSomebodyWaits(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	reader := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }
	permit := func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) }
	writer := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }
	for name, test := range map[string]struct {
		holders []func(*redlock.Client) redlock.Lock
		waiter  func(*redlock.Client) redlock.Lock
	}{
		"readers, of a writer":      {[]func(*redlock.Client) redlock.Lock{reader, reader}, writer},
		"readers, of a fair writer": {[]func(*redlock.Client) redlock.Lock{reader, reader}, func(c *redlock.Client) redlock.Lock { return writer(c).Fair() }},
		"a writer, of a reader":     {[]func(*redlock.Client) redlock.Lock{writer}, reader},
		"holders of permits":        {[]func(*redlock.Client) redlock.Lock{permit, permit}, permit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 3)
				waiter := w.connect(t, 2, redlock.LostPoll(time.Hour))
				require.NoError(t, waiter.Enroll(t.Context()))
				var leases []*redlock.Lease
				for i, holder := range test.holders {
					c := w.connect(t, i)
					c.Status(t.Context())
					l, err := holder(c).WithoutRenewal().Acquire(t.Context())
					require.NoError(t, err)
					leases = append(leases, l)
					l.Wanted()
				}
				for _, s := range w.servers {
					for client := range 3 {
						s.slow(client, roundTrip)
					}
				}
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := test.waiter(waiter).Acquire(ctx)
					ended <- err
				}()
				began := time.Now()
				for _, l := range leases {
					closedAfter(l.Wanted())
				}
				require.LessOrEqual(t, time.Since(began), 8*roundTrip)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				for _, l := range leases {
					require.NoError(t, l.Release(t.Context()))
				}
			})
		})
	}
}

func TestALeaseThatHasEndedIsNotWanted(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	c := open(t, f)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	early := l.Wanted()
	require.NoError(t, l.Release(ctx))
	other, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	stop := waits(t, c, "x")
	require.Eventually(t, func() bool { return isClosed(other.Wanted()) }, 10*time.Second, time.Millisecond)
	require.False(t, isClosed(early))
	require.False(t, isClosed(l.Wanted()))
	require.NoError(t, other.Release(ctx))
	stop()
}

// The subscription lasts as long as a lease wants to know, and no longer.
func TestOnlyALeaseThatWantsToKnowSubscribes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		time.Sleep(time.Minute) // the clock of a client that has just begun is no older than a subscription lingers
		subscribed := func() (nodes int) {
			synctest.Wait()
			for _, s := range w.servers {
				s.mu.Lock()
				nodes += min(1, len(s.deaf))
				s.deaf = map[*timed]bool{}
				s.mu.Unlock()
			}
			return nodes
		}
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Zero(t, subscribed())
		l.Wanted()
		time.Sleep(time.Second)
		require.Equal(t, 3, subscribed())
		for _, s := range w.servers {
			require.Equal(t, 1, channels(t, s, "redlock:released:wanted:*"))
		}
		time.Sleep(time.Minute)
		for _, s := range w.servers {
			require.Equal(t, 1, channels(t, s, "redlock:released:wanted:*"), "it lasts")
		}
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(time.Minute)
		for _, s := range w.servers {
			require.Zero(t, channels(t, s, "redlock:released:*"))
		}
		require.Zero(t, subscribed())

		l, err = c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		l.Wanted()
		time.Sleep(time.Second)
		require.Zero(t, subscribed(), "it has ended, and nobody will be told")
	})
}

// channels is how many such channels somebody has subscribed to.
func channels(t *testing.T, s *server, pattern string) int {
	s.mu.Lock()
	commands := s.commands
	s.mu.Unlock()
	conn, err := commands.Dial()
	require.NoError(t, err)
	c := redis.NewConn(conn, 0, 0)
	defer c.Close()
	all, err := redis.Strings(c.Do("PUBSUB", "CHANNELS", pattern))
	require.NoError(t, err)
	return len(all)
}

func TestAHolderIsToldThatItsLockWasTaken(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	byForce := func(ctx context.Context, c *redlock.Client, l *redlock.Lease) error {
		return c.ForceRelease(ctx, l.Names()[0])
	}
	byToken := func(ctx context.Context, c *redlock.Client, l *redlock.Lease) error {
		return c.ReleaseToken(ctx, l.Names()[0], l.Token())
	}
	for name, test := range map[string]struct {
		take       func(context.Context, *redlock.Client, *redlock.Lease) error
		names      []string
		unasked    bool // the lease has not asked for messages
		mute       int  // 1: the holder's user may use no channel; 2: that of whoever takes it
		own        bool // it is taken by the holder's own client
		fixed      bool
		dead, down int
		within     time.Duration
	}{
		"by force":                    {take: byForce, within: 2 * roundTrip},
		"by its token":                {take: byToken, within: 2 * roundTrip},
		"by force, two of five away":  {take: byForce, dead: 2, within: 2 * roundTrip},
		"by its own client":           {take: byForce, own: true, unasked: true, within: 2 * roundTrip},
		"the first of its names":      {take: byForce, names: []string{"y"}, within: 2 * roundTrip},
		"though it is never renewed":  {take: byForce, fixed: true, within: 2 * roundTrip},
		"without messages":            {take: byForce, unasked: true, within: 10*time.Second/3 + 2*roundTrip},
		"though it may not subscribe": {take: byForce, mute: 1, within: 10*time.Second/3 + 2*roundTrip},
		"by one that may not publish": {take: byForce, mute: 2, within: 10*time.Second/3 + 2*roundTrip},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 5, 2)
				w.has.mute = test.mute
				holder, operator := w.connect(t, 0), w.connect(t, 1)
				require.NoError(t, holder.Enroll(t.Context()))
				operator.Status(t.Context())
				time.Sleep(time.Minute)
				for _, s := range w.servers {
					s.slow(0, roundTrip)
					s.slow(1, roundTrip)
				}
				if test.own {
					operator = holder
				}
				lock := holder.Mutex("x", test.names...)
				if test.fixed {
					lock = lock.WithoutRenewal()
				}
				l, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Extend(t.Context()))
				if !test.unasked {
					l.Wanted()
				}
				time.Sleep(time.Second)
				for _, s := range w.servers[:test.dead] {
					s.stop()
				}
				time.Sleep(100 * time.Millisecond)
				ctx := l.Context()
				require.NoError(t, test.take(t.Context(), operator, l))
				took := closedAfter(ctx.Done())
				require.LessOrEqual(t, took, test.within)
				if test.within > time.Second {
					require.Greater(t, took, time.Second, "nothing told it sooner")
				}
				require.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
				require.ErrorIs(t, l.Release(t.Context()), redlock.ErrLost)
			})
		})
	}
}

// A message is a hint, which anybody may send. A lease that nobody has taken goes on, with the same end.
func TestAFalseMessageTakesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		l, err := c.Mutex("x").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context())) // every node has it
		l.Wanted()
		time.Sleep(5 * time.Second)
		left, kept := l.Remaining(), w.servers[0].timeToLive("x")
		for _, s := range w.servers {
			for _, message := range []string{"x", "y", "", "\xff x"} {
				s.tell("PUBLISH", "redlock:released:taken:"+redlock.ShortID(c), message)
				s.tell("PUBLISH", "redlock:released:wanted:"+redlock.ShortID(c), "y"+message)
			}
		}
		synctest.Wait()
		require.True(t, l.Valid())
		require.Equal(t, left, l.Remaining())
		require.Equal(t, kept, w.servers[0].timeToLive("x"))
		require.False(t, isClosed(l.Wanted()))
		w.servers[0].tell("DEL", "x") // by hand, and one of three is no loss
		w.servers[0].tell("PUBLISH", "redlock:released:taken:"+redlock.ShortID(c), "x")
		synctest.Wait()
		require.True(t, l.Valid())
		w.servers[1].tell("DEL", "x")
		require.True(t, l.Valid(), "nothing notices")
		w.servers[2].tell("PUBLISH", "redlock:released:taken:"+redlock.ShortID(c), "x")
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, l.Valid())
	})
}

// As many leases may ask as there are. A waiter, or the end of a lease, concerns those of its own names, and looks at no
// others: otherwise Close would take 5s with 25 000 of them, and four times that with twice as many.
func TestLeasesThatAskCostThoseOfOtherNamesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		several, err := all[0].Mutex("x", "y").Acquire(t.Context())
		require.NoError(t, err)
		one, err := all[0].Mutex("z").Acquire(t.Context())
		require.NoError(t, err)
		first, second := several.Wanted(), one.Wanted()
		synctest.Wait() // what is still under way allocates too, and all of the process is counted
		require.Zero(t, testing.AllocsPerRun(10, func() { redlock.IsWanted(all[0], "other") }))
		require.False(t, isClosed(first) || isClosed(second))
		for range 2 {
			redlock.IsWanted(all[0], "y")
			require.True(t, isClosed(first))
			require.False(t, isClosed(second))
		}
		require.NoError(t, one.Release(t.Context()))
		redlock.IsWanted(all[0], "z")
		require.False(t, isClosed(second), "the end of a lease closes nothing")
		require.NoError(t, several.Release(t.Context()))
	})
}

// A waiter in order of arrival is refused because of one of its names. It is new in the queues of all, whose holders learn of it.
func TestTheHoldersOfAllNamesLearnOfAFairWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 3)
		var holders []*redlock.Lease
		for i, name := range []string{"x", "y"} {
			c := w.connect(t, i)
			if i == 0 {
				require.NoError(t, c.Enroll(t.Context()))
			}
			c.Status(t.Context())
			l, err := c.Mutex(name).WithoutRenewal().Acquire(t.Context())
			require.NoError(t, err)
			l.Wanted()
			holders = append(holders, l)
		}
		waiter := w.connect(t, 2, redlock.LostPoll(time.Hour))
		waiter.Status(t.Context())
		time.Sleep(time.Second)
		stop := waitsToGet(t, waiter.Mutex("x", "y").Fair())
		for _, l := range holders {
			require.LessOrEqual(t, closedAfter(l.Wanted()), time.Second)
			require.NoError(t, l.Release(t.Context()))
		}
		stop()
	})
}
