package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

// each calls f with the error of each node.
func each(t *testing.T, err error, f func(*redlock.NodeError)) {
	t.Helper()
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round)
	require.NotNil(t, round.Err)
	for _, e := range round.Err.Errors {
		var node *redlock.NodeError
		require.ErrorAs(t, e, &node)
		f(node)
	}
}

func TestARefusalSaysOnOneLineWhoHoldsTheLockAndEachCauseOnce(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{}), soon(t)
	a := open(t, f)
	l, err := a.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	for _, n := range f.Nodes()[3:] {
		require.NoError(t, n.Kill())
	}
	b := open(t, f, redlock.AskAll)

	_, err = b.Mutex("x").TryAcquire(ctx)
	text := err.Error()
	t.Log(text)
	require.NotContains(t, text, "\n")
	host, errHost := os.Hostname()
	require.NoError(t, errHost)
	me := fmt.Sprint(host, "/", os.Getpid())
	require.Equal(t, 1, strings.Count(text, fmt.Sprintf("held by %s for ", me)), "named once, and not by the whole token: anybody could release the lock with that")
	require.NotContains(t, text, l.Token())
	require.Equal(t, 1, strings.Count(text, "refused"), "two nodes share it: their addresses are in their names")
	for _, n := range f.Nodes() {
		require.Equal(t, 1, strings.Count(text, strings.TrimPrefix(n.URL(), "redis://")), "each node is named once")
	}

	for _, logged := range []error{err, redlock.Join(context.Canceled, err), fmt.Errorf("job: %w", err)} {
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Warn("failed", "error", logged)
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		require.NotContains(t, log.String(), `\n`)
	}

	detail := strings.Split(fmt.Sprintf("%+v", err), "\n")
	require.Len(t, detail, 6, "a line for each node")
	require.Contains(t, detail[0], "3 denied, 2 unknown")

	denials := 0
	each(t, err, func(node *redlock.NodeError) {
		var denial *redlock.Denial
		if !errors.As(node, &denial) {
			require.NotErrorIs(t, node, redlock.ErrHeld)
			return
		}
		denials++
		require.ErrorIs(t, node, redlock.ErrHeld)
		require.Equal(t, redlock.ReasonHeld, denial.Reason)
		require.Equal(t, "held", denial.Reason.String())
		require.Equal(t, l.Token(), denial.Owner)
		require.Greater(t, denial.Left, 5*time.Second)
		require.Equal(t, l.Fence(), denial.Highest)
	})
	require.Equal(t, 3, denials)
}

// A3: One node that says held does not make an outage a held lock.
func TestAnOutageIsNotHeldThoughANodeSaysSo(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	a, b := open(t, f), open(t, f)
	l, err := a.Mutex("x").WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	require.NoError(t, f.Nodes()[1].Pause())
	require.NoError(t, f.Nodes()[2].Pause())
	_, err = b.Mutex("x").TryAcquire(ctx)
	require.NoError(t, f.Nodes()[1].Resume())
	require.NoError(t, f.Nodes()[2].Resume())
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, redlock.ErrHeld)
	require.ErrorAs(t, err, new(*redlock.Denial))
}

// The library's own time limits end with the errors of package context. They are not the caller's, whose context goes on:
// an outage that matched them would look like a wait that was cut short.
func TestAnOutageIsNotTakenForTheEndOfTheCallersContext(t *testing.T) {
	for name, dial := range map[string]func(context.Context) error{
		"a connection that is swallowed": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"a Dial that ignores its context": func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		},
		"a time limit of its own": func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
		},
		"a context of its own": func(context.Context) error { return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := redlock.New(redlock.Config{Nodes: []redlock.Node{{Name: "a", Dial: func(ctx context.Context) (redis.Conn, error) {
					return nil, dial(ctx)
				}}}})
				require.NoError(t, err)
				defer time.Sleep(time.Minute) // until the last Dial has returned
				defer c.Close()
				_, err = c.Mutex("x").TryAcquire(context.Background())
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				each(t, err, func(node *redlock.NodeError) { // what the node says is still there
					require.True(t, errors.Is(node, context.DeadlineExceeded) || errors.Is(node, context.Canceled), node)
				})

				short, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, err = c.Mutex("x").Acquire(short)
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
			})
		})
	}
}

// A node whose clock is out of step would be of no use if it were free. So with a second one away, no lock can be granted:
// that is an outage, also for the name that it has a key of.
func TestADenialByAWrongClockIsNoProofThatTheLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		defer c.Close()
		c.Status(t.Context())
		conn, err := nodes.Nodes()[1].Dial(t.Context()) // a holder crashed, and its key is left there
		require.NoError(t, err)
		_, err = conn.Do("SET", "x", "somebody", "PX", 10_000)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		nodes.StepClock(1, -time.Hour)
		nodes.Kill(0)
		time.Sleep(20 * time.Second)
		for _, name := range []string{"x", "y"} {
			_, err = c.Mutex(name).TryAcquire(t.Context())
			require.ErrorIs(t, err, redlock.ErrNoQuorum, name)
			require.ErrorContains(t, err, "out of step", name)
			var round *redlock.RoundError
			require.ErrorAs(t, err, &round)
			require.Equal(t, []int{1, 0, 2}, []int{round.Granted, round.Denied, round.Unknown}, name)
		}
	})
}

func TestAKeyThatIsNoStringIsCalledThat(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		for _, n := range f.Nodes() {
			tell(t, n, "RPUSH", "x", "of another program")
		}
		_, err := open(t, f).Mutex("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, "held by something that is not a lock, without expiry")
	})
}

func TestWhatAnotherProgramWroteAddsNoLineToAnError(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		for _, n := range f.Nodes() {
			tell(t, n, "SET", "x", "\n\x1b[31mFAKE\r\nlevel=ERROR and more")
		}
		_, err := c.Mutex("x").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, `held by "\n\x1b[31mFAKE\r\nleve"… (not a lock of this library), without expiry`)
		for _, text := range []string{err.Error(), fmt.Sprint(err), fmt.Sprintf("%s", err)} {
			require.NotContains(t, text, "\n")
			require.NotContains(t, text, "\x1b")
		}
		require.Len(t, strings.Split(fmt.Sprintf("%+v", err), "\n"), 4)

		waited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = c.Mutex("x").Acquire(waited)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NotContains(t, err.Error(), "\n")
		require.Contains(t, fmt.Sprintf("%+v", err), "\n")
	})
}

// Without a Logger, the error is all that a newcomer sees. So it says how the quarantine ends.
func TestTheFirstErrorOnNewServersSaysHowTheQuarantineEnds(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		t.Parallel() // they wait
		c := openFresh(t, f)
		// Long enough for a busy machine to dial five nodes and to judge them.
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err := c.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorAs(t, err, new(*redlock.QuarantineError))
		require.Equal(t, 1, strings.Count(err.Error(), "redlock enroll"))
		require.NotContains(t, err.Error(), "\n")
	})
}

// W1: A waiter behind another caller of its process asks no node itself. Its error still says that the lock is held.
func TestWhoWaitsInLineIsToldThatTheLockIsHeld(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	holder, c := open(t, f), open(t, f)
	l, err := holder.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	first := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	go func() {
		_, err := c.Mutex("x").Acquire(waiting)
		first <- err
	}()
	require.Eventually(t, func() bool { return redlock.InLine(c, "x") == 1 }, 5*time.Second, time.Millisecond)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = c.Mutex("x").Acquire(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, redlock.ErrHeld)

	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Kill())
	}
	require.Eventually(t, func() bool { s := c.Status(ctx); return !s[1].Connected && !s[2].Connected }, 5*time.Second, time.Millisecond)
	short, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = c.Mutex("x").Acquire(short)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, redlock.ErrHeld)
	stop()
	require.ErrorIs(t, <-first, context.Canceled)
	_ = l.Release(ctx)
}

// T1, W1: Callers of one process give up a millisecond after one another, sooner than a node can answer. So each has its
// turn too late, and is told what it waited for before.
func TestWhoseTurnComesTooLateForAnAnswerIsToldThatTheLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		for name, lock := range map[string]func(*redlock.Client) redlock.Lock{
			"mutex":     func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
			"writer":    func(c *redlock.Client) redlock.Lock { return c.RWMutex("y").Writer() },
			"semaphore": func(c *redlock.Client) redlock.Lock { return c.Semaphore("z", 1) },
		} {
			// The caller ahead got the lock, after it had waited for it, so it was not refused last.
			l, err := lock(all[0]).Acquire(t.Context())
			require.NoError(t, err)
			first := make(chan *redlock.Lease)
			go func() {
				l, err := lock(all[1]).Acquire(t.Context())
				assert.NoError(t, err)
				first <- l
			}()
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, l.Release(t.Context()))
			l = <-first
			for _, s := range w.servers {
				s.slow(1, 20*time.Millisecond)
			}
			errs := make(chan error, 10)
			for i := range 10 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond+time.Duration(i)*time.Millisecond)
					defer cancel()
					_, err := lock(all[1]).Acquire(ctx)
					errs <- err
				}()
				synctest.Wait() // they are in this order
			}
			for range 10 {
				err := <-errs
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				require.ErrorIs(t, err, redlock.ErrHeld, name)
			}
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// T1, W1: A waiter behind another caller of its process is told what that one is told. Here the servers are up, and
// refuse to write because their memory is full. Nobody has the lock.
func TestWhoWaitsInLineIsToldThatServersRefuse(t *testing.T) {
	f := startNodes(t, 3)
	refused := make(chan struct{}, 100)
	c := open(t, f, func(cfg *redlock.Config) {
		cfg.Hooks.Refused = func([]string, error) {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
	})
	for _, n := range f.Nodes() {
		tell(t, n, "CONFIG", "SET", "maxmemory", "1")
	}
	ctx, stop := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	acquire := func() {
		_, err := c.Mutex("x").Acquire(ctx)
		errs <- err
	}
	go acquire()
	<-refused
	<-refused // also as a waiter that was refused before
	go acquire()
	require.Eventually(t, func() bool { return redlock.InLine(c, "x") == 2 }, 5*time.Second, time.Millisecond)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, third := c.Mutex("x").Acquire(short)
	require.ErrorIs(t, third, context.DeadlineExceeded)
	stop() // both at the same moment
	for _, err := range []error{third, <-errs, <-errs} {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, "OOM")
	}
}

// T1: A waiter asks one node again and again. The error of an Acquire that was not served says so of the others, and does
// not send the reader to look at nodes that are well.
func TestAnAcquireThatTimesOutDoesNotSayThatNodesThatItDidNotAskWereSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 2)
		held, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		defer held.Release(t.Context())
		for wait := 20 * time.Millisecond; wait < 3*time.Second; wait += 97 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err = all[1].Mutex("x").Acquire(ctx)
			cancel()
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.NotContains(t, err.Error(), "no answer")
			require.Contains(t, err.Error(), "held by")
		}
	})
}

func TestTheErrorOfANodeMayLackItsReason(t *testing.T) {
	require.Equal(t, "a", (&redlock.NodeError{Node: "a"}).Error())
}

// A lock may have a thousand names of a kilobyte. An error, which is a line of a log as well, has some of them.
func TestAnErrorOfALockOfManyNamesListsSomeOfThem(t *testing.T) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("%04d", i)
	}
	for count, want := range map[int]string{
		10:   `"0008", "0009" (`,
		11:   `"0008", "0009" and 1 more (`,
		1000: `"0008", "0009" and 990 more (`,
	} {
		err := &redlock.RoundError{Op: "acquire", Names: names[:count], Denied: 3, Need: 2}
		require.Contains(t, err.Error(), want)
	}
	info := redlock.LeaseInfo{Names: names, Fence: 7}
	require.Contains(t, info.String(), `"0009" and 990 more, fencing token 7`)
}
