package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// L2: What the reply to the last request asks for is still sent: the release that a server refused, because it had forgotten
// the script; or that an election is over.
func TestCloseSendsWhatTheLastReplyAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		nodes, answered := access.Of(all[0]), make(chan error, 1)
		var closed sync.WaitGroup
		nodes.Get(0, "x", func(string, error) {
			closed.Go(func() { _ = all[0].Close() })
			time.Sleep(nodeTimeout / 10) // Close finds nothing that is not answered
			nodes.Get(0, "y", func(_ string, err error) { answered <- err })
		})
		require.ErrorIs(t, <-answered, redis.ErrNil, "the key is not there")
		closed.Wait()
	})
}

// L2: A connection that breaks while Close waits for the answers to its releases is opened again. Close takes no longer
// than NodeTimeout whatever the server does then, and waits for none that is gone.
func TestCloseReleasesThoughConnectionsBreakMeanwhile(t *testing.T) {
	const broken = nodeTimeout / 10
	for name, of := range map[string]struct {
		before, then func(*server)
		longest      time.Duration
		released     bool
	}{
		"the server is up":           {longest: broken, released: true},
		"the server is gone then":    {then: (*server).stop, longest: broken},
		"the server was gone before": {before: (*server).stop},
		"the server answers nobody":  {then: func(s *server) { s.links[0].hold(requests, +1) }, longest: nodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 1)
				_, err := all[0].Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				for _, s := range w.servers {
					if of.before != nil {
						of.before(s)
					}
					s.links[0].hold(requests, +1)
				}
				synctest.Wait()
				began, closed := time.Now(), make(chan time.Duration, 1)
				go func() {
					_ = all[0].Close()
					closed <- time.Since(began)
				}()
				time.Sleep(broken)
				for _, s := range w.servers {
					if of.then != nil {
						of.then(s)
					}
					s.links[0].reset() // as CLIENT KILL does, or a firewall that was reloaded
					s.links[0].hold(requests, -1)
				}
				require.LessOrEqual(t, <-closed, of.longest)
				for _, s := range w.servers {
					require.True(t, !of.released || s.timeToLive("x") == 0, "the key is left")
				}
			})
		})
	}
}

// L2: Close also ends leases that are being renewed at that moment. These leases renew all the time, so each Close
// meets some.
func TestCloseEndsEveryLeaseAlsoThoseThatAreBeingRenewed(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	fast := func(cfg *redlock.Config) { cfg.TTL, cfg.NodeTimeout = 30*time.Millisecond, 10*time.Millisecond }
	open(t, f, fast)
	for i := range fifth(40) {
		c := openFresh(t, f, fast)
		var leases []*redlock.Lease
		for j := range 40 {
			if l, err := c.Mutex(fmt.Sprint(i, "/", j)).TryAcquire(soon(t)); err == nil { // on a busy machine some take too long
				leases = append(leases, l)
				l.Context()
			}
		}
		require.NoError(t, c.Close())
		for _, l := range leases {
			require.Error(t, l.Context().Err(), "the client is closed, nothing renews this lease, and its context has not ended")
			require.False(t, l.Valid())
		}
	}
}

// L2: What a client acquires while it is being closed must not stay locked until it expires. Every deployment closes
// clients in the middle of their work.
func TestCloseLeavesNothingOfAnAcquireUnderWay(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
			open(t, f)
			for i, n := range f.Nodes() {
				require.NoError(t, n.Delay(delay*time.Duration(i+1)))
			}
			const names = 20
			for i := range 20 {
				c := openFresh(t, f)
				require.NoError(t, c.Mutex("warm").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
				var under sync.WaitGroup
				for j := range names {
					under.Go(func() {
						acquire := c.Mutex(fmt.Sprint(i, "/", j)).Acquire
						if j%2 == 0 {
							acquire = c.Mutex(fmt.Sprint(i, "/", j)).TryAcquire
						}
						l, err := acquire(context.Background())
						if err != nil {
							assert.ErrorIs(t, err, redlock.ErrClosed)
							return
						}
						<-l.Context().Done() // acquired before Close, which releases it
					})
				}
				time.Sleep(delay/2*time.Duration(i%10) + time.Duration(i%10)*50*time.Microsecond)
				require.NoError(t, c.Close())
				under.Wait()
			}
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				for _, n := range f.Nodes() {
					assert.Equal(t, int64(0), tellQuiet(n, "EVAL", "return #redis.call('KEYS', '*/*')", 0))
				}
			}, 5*time.Second, 5*time.Millisecond, "half the TTL")
		})
	}
}

// tellQuiet is tell for goroutines other than the test's.
func tellQuiet(n *fleet.Node, command string, args ...any) any {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := n.DialDirect(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	reply, err := conn.Do(command, args...)
	if err != nil {
		return err
	}
	return reply
}

func TestAnAcquireAfterCloseIsRefused(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c := open(t, f)
	require.NoError(t, c.Close())
	_, err := c.Mutex("x").Acquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrClosed)
	_, err = c.Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrClosed)
}

// A process that has lost its leadership may call Close in the Lost hook. Close must not wait for that hook.
func TestCloseMayBeCalledByAHook(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	var c *redlock.Client
	closed := make(chan error, 1)
	c = open(t, f, func(cfg *redlock.Config) {
		cfg.Hooks.Lost = func(redlock.LeaseInfo, error) { closed <- c.Close() }
	})
	l, err := c.Mutex("x").WithMaxHold(50 * time.Millisecond).Acquire(soon(t))
	require.NoError(t, err)
	<-l.Context().Done()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-soon(t).Done():
		t.Fatal("Close, called by the Lost hook, has not returned")
	}
}

func TestCloseWaitsForWhatHooksAreStillToBeToldAndNotForOneThatBlocks(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	released := 0
	quick := open(t, f, func(cfg *redlock.Config) {
		cfg.Hooks.Released = func(redlock.LeaseInfo, error) { released++ } // no race: the test reads it after Close
	})
	for range 100 {
		require.NoError(t, quick.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
	}
	require.NoError(t, quick.Close())
	require.Equal(t, 100, released)

	slow := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1, Links: true})
	told := make(chan struct{}, 1)
	late := open(t, slow, func(cfg *redlock.Config) {
		cfg.Hooks.Released = func(redlock.LeaseInfo, error) { told <- struct{}{} }
	})
	under, err := late.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	require.NoError(t, slow.Nodes()[0].Delay(20*time.Millisecond))
	ctx := under.Context()
	go under.Release(context.Background())
	<-ctx.Done()
	require.NoError(t, late.Close())
	require.Len(t, told, 1, "the hook of a Release that was running")

	block, ended := make(chan struct{}), make(chan struct{})
	stuck := open(t, f, func(cfg *redlock.Config) {
		cfg.Hooks.Acquired = func(redlock.LeaseInfo, time.Duration, int) { <-block }
		cfg.Hooks.Released = func(redlock.LeaseInfo, error) { close(ended) }
	})
	l, err := stuck.Mutex("x").Acquire(soon(t))
	require.NoError(t, err, "the caller does not wait for the hook")
	require.NoError(t, l.Release(soon(t)))
	require.NoError(t, stuck.Close())
	close(block)
	<-ended // the queued hook still runs
}

// A node's Dial is the user's code and may ignore its context. Close returns all the same.
func TestCloseDoesNotWaitForADialThatDoesNotReturn(t *testing.T) {
	block, dialled := make(chan struct{}), make(chan struct{}, 100)
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 2})
	late := make(chan *closingConn, 100)
	c := openFresh(t, f, func(cfg *redlock.Config) {
		cfg.Nodes = append(cfg.Nodes, redlock.Node{Name: "stuck", Dial: func(context.Context) (redis.Conn, error) {
			dialled <- struct{}{}
			<-block
			conn := &closingConn{ended: make(chan struct{})}
			late <- conn
			return conn, nil
		}})
	})
	<-dialled
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-soon(t).Done():
		t.Error("Close waits for Dial")
	}
	close(block)
	<-(<-late).ended
}

// A closingConn reports when it is closed.
type closingConn struct {
	redis.Conn
	ended chan struct{}
}

func (c *closingConn) Close() error {
	close(c.ended)
	return nil
}

// L2: A writer's lease becomes a reader's, or a lease asks for waiters, at the moment of Close. No lease is left, no
// goroutine begins behind it.
func TestCloseEndsAlsoALeaseThatHasJustBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := enrolled(t, 1)
		for i := range trials(400) {
			c := w.connect(t, 0)
			l, err := c.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			var reader *redlock.Lease
			var calls sync.WaitGroup
			calls.Go(func() { l.Wanted() })
			calls.Go(func() { reader, err = l.Downgrade(t.Context()) })
			for range i % 40 {
				runtime.Gosched()
			}
			require.NoError(t, c.Close())
			calls.Wait()
			if err != nil {
				require.ErrorIs(t, err, redlock.ErrClosed)
			} else {
				require.False(t, reader.Valid(), "trial %d", i)
			}
			for _, s := range w.servers {
				require.False(t, s.redis.Exists("x"), "trial %d", i)
			}
		}
	})
}

// L2: A lease is released while its client is closed. Whoever of the two sends the release, it is sent.
func TestCloseInTheMiddleOfAReleaseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := enrolled(t, 1)
		for i := range trials(400) {
			c := w.connect(t, 0)
			l, err := c.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			var calls sync.WaitGroup
			calls.Go(func() { _ = l.Release(t.Context()) })
			for range i % 40 {
				runtime.Gosched()
			}
			require.NoError(t, c.Close())
			calls.Wait()
			for _, s := range w.servers {
				require.False(t, s.redis.Exists("x"), "trial %d", i)
			}
		}
	})
}

// L2, D5: Close comes in the middle of an Adopt. If that says that the client is closed, the ticket is as good as before.
func TestCloseInTheMiddleOfAnAdoptLeavesTheTicketOrUsesIt(t *testing.T) {
	kept, used := 0, 0
	var took time.Duration // of an Adopt that is not disturbed: its wait for clocks that differ (C2)
	for i := range 1 + trials(200) {
		synctest.Test(t, func(t *testing.T) {
			w, all := enrolled(t, 2)
			giver, c := all[0], all[1]
			l, err := giver.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			ticket, err := l.Detach(t.Context())
			require.NoError(t, err)
			var calls sync.WaitGroup
			calls.Go(func() { l, err = c.Adopt(t.Context(), ticket) })
			began := time.Now()
			if i == 0 {
				calls.Wait()
				took = time.Since(began)
			}
			time.Sleep(took)
			for range i % 40 {
				runtime.Gosched()
			}
			require.NoError(t, c.Close())
			calls.Wait()
			if err == nil {
				require.False(t, l.Valid())
				for _, s := range w.servers {
					require.False(t, s.redis.Exists("x"), "trial %d", i)
				}
				used++
				return
			}
			kept++
			require.ErrorIs(t, err, redlock.ErrClosed)
			l, err = giver.Adopt(t.Context(), ticket)
			require.NoError(t, err, "trial %d", i)
			require.NoError(t, l.Release(t.Context()))
		})
	}
	t.Logf("used %d times, and kept %d times", used, kept)
}

// Clients are closed in the middle of everything, with all hooks and a logger. This is for the race detector, and for
// the test for leaked goroutines at the end.
func TestClientsAreClosedInTheMiddleOfEverything(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	open(t, f, func(cfg *redlock.Config) { cfg.TTL, cfg.MaxTTL = time.Second, 2*time.Second })
	stop, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	var told atomic.Int64
	ofLease := func(l redlock.LeaseInfo, err error) { told.Add(1); _ = fmt.Sprint(l, err) }
	configure := func(cfg *redlock.Config) {
		cfg.TTL, cfg.MaxTTL, cfg.NodeTimeout = 300*time.Millisecond, 2*time.Second, 75*time.Millisecond
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
		cfg.Hooks = redlock.Hooks{
			Acquired:     func(redlock.LeaseInfo, time.Duration, int) { told.Add(1) },
			Refused:      func(_ []string, err error) { ofLease(redlock.LeaseInfo{}, err) },
			Extended:     func(redlock.LeaseInfo, time.Duration, time.Duration) { told.Add(1) },
			ExtendFailed: ofLease, Released: ofLease, Lost: ofLease,
			NodeUp:   func(string) { told.Add(1) },
			NodeDown: func(_ string, err error) { ofLease(redlock.LeaseInfo{}, err) },
		}
	}
	var all sync.WaitGroup
	for id := range 3 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(id), 5))
			for stop.Err() == nil {
				cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
				configure(&cfg)
				c, err := redlock.New(cfg)
				if !assert.NoError(t, err) {
					return
				}
				var workers sync.WaitGroup
				for range 6 {
					seed := r.Uint64()
					workers.Go(func() { workUntilClosed(c, rand.New(rand.NewPCG(seed, 0))) })
				}
				time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
				workers.Go(func() { _, _ = c.Inspect(context.Background(), "a") })
				workers.Go(func() { c.Status(context.Background()) })
				assert.NoError(t, c.Close())
				workers.Wait()
			}
		})
	}
	all.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		for stop.Err() == nil {
			time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
			switch n := f.Nodes()[r.IntN(3)]; r.IntN(3) {
			case 0:
				assert.NoError(t, n.Cut())
				time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
				assert.NoError(t, n.Heal())
			case 1:
				tellQuiet(n, "CLIENT", "KILL", "TYPE", "normal")
			case 2:
				tellQuiet(n, "CLIENT", "KILL", "TYPE", "pubsub")
			}
		}
	})
	all.Wait()
	require.NoError(t, f.Heal())
	require.Positive(t, told.Load())
	clears(t, f, "a")
	clears(t, f, "b")
}

// workUntilClosed acquires, re-enters, extends and releases until the client is closed.
func workUntilClosed(c *redlock.Client, r *rand.Rand) {
	for {
		ctx, done := context.WithTimeout(context.Background(), time.Duration(r.IntN(400))*time.Millisecond)
		l, err := c.Mutex([]string{"a", "b"}[r.IntN(2)]).Reentrant().Acquire(ctx)
		if err == nil {
			under := l.With(ctx)
			var beside sync.WaitGroup
			if again, err := c.Mutex(l.Names()[0]).Reentrant().Acquire(under); err == nil {
				beside.Go(func() { _ = again.Release(context.Background()) })
			}
			time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
			_ = l.Extend(under)
			_ = l.Release(under)
			beside.Wait()
		}
		done()
		if _, err := c.Mutex("c").TryAcquire(context.Background()); errors.Is(err, redlock.ErrClosed) {
			return
		}
	}
}

// The releases of many leases take a server longer than NodeTimeout. Close waits for a server that goes on answering, and no
// longer than NodeTimeout for one that does not.
func TestCloseWaitsForTheReleasesOfManyLeases(t *testing.T) {
	const leases, each = 100, 20 * time.Millisecond
	for name, silent := range map[string]int{"all answer": -1, "one falls silent": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 1)
				var busy atomic.Bool
				c := w.connect(t, 0, func(cfg *redlock.Config) {
					for i, n := range cfg.Nodes {
						cfg.Nodes[i].Dial = func(ctx context.Context) (redis.Conn, error) {
							conn, err := n.Dial(ctx)
							return &busyConn{conn, &busy, each}, err
						}
					}
				})
				require.NoError(t, c.Enroll(t.Context()))
				held := make([]*redlock.Lease, leases)
				for i := range held {
					var err error
					held[i], err = c.Mutex(fmt.Sprint("lock ", i)).Acquire(t.Context())
					require.NoError(t, err)
				}
				busy.Store(true)
				began := time.Now()
				if silent >= 0 {
					w.servers[silent].slow(0, time.Minute)
				}
				require.NoError(t, c.Close())
				require.Less(t, time.Since(began), leases*each+2*nodeTimeout)
				for i, l := range held {
					require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrClosed)
					for _, s := range w.having(fmt.Sprint("lock ", i)) {
						require.Equal(t, silent, s.index)
					}
				}
			})
		})
	}
}

// A busyConn is a connection to a server that needs so long for each command.
type busyConn struct {
	redis.Conn
	busy *atomic.Bool
	each time.Duration
}

func (c *busyConn) Send(command string, args ...any) error {
	if err := c.Conn.Send(command, args...); err != nil || !c.busy.Load() {
		return err
	}
	time.Sleep(c.each)
	return c.Conn.Flush()
}
