package recorder_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
	"github.com/quorumlock/redlock/audit/recorder"
	"github.com/quorumlock/redlock/redlocktest"
)

func right(t *testing.T, clients ...recorded) {
	t.Helper()
	if r := judge(t, clients...); len(r.Violations) > 0 {
		for _, c := range clients {
			t.Log(c.journal.String())
		}
		require.Empty(t, r.Violations)
	}
}

// A gate holds up the answers to one client.
type gate struct {
	mu   sync.Mutex
	shut chan struct{}
}

func (g *gate) close() { g.mu.Lock(); g.shut = make(chan struct{}); g.mu.Unlock() }
func (g *gate) open()  { g.mu.Lock(); close(g.shut); g.shut = nil; g.mu.Unlock() }

type gated struct {
	redis.Conn
	g *gate
}

func (c gated) Receive() (any, error) {
	reply, err := c.Conn.Receive()
	c.g.mu.Lock()
	shut := c.g.shut
	c.g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return reply, err
}

func (g *gate) through(c *redlock.Config) {
	c.Nodes = append([]redlock.Node{}, c.Nodes...)
	for i := range c.Nodes {
		dial := c.Nodes[i].Dial
		c.Nodes[i].Dial = func(ctx context.Context) (redis.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return gated{conn, g}, nil
		}
	}
}

// The answers to a renewal come after the lease was released, and another has it.
func TestARenewalThatIsAnsweredAfterTheReleaseIsNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		g := &gate{}
		a, b := open(t, nodes, "a", g.through), open(t, nodes, "b")
		lease, err := a.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(3330 * time.Millisecond)
		g.close()
		time.Sleep(5 * time.Millisecond) // the renewal is under way
		go func() { _ = lease.Release(context.Background()) }()
		time.Sleep(time.Millisecond)
		l, err := b.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(200 * time.Millisecond)
		g.open()
		time.Sleep(time.Second)
		require.NoError(t, l.Release(t.Context()))
		right(t, a, b)
	})
}

// A writer that became a reader is released before its first renewal.
func TestAWriterThatWasAReaderForAMomentIsNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		a, b := open(t, nodes, "a"), open(t, nodes, "b")
		w, err := a.RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		r, err := w.Downgrade(t.Context())
		require.NoError(t, err)
		l, err := b.RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, r.Release(t.Context()))
		right(t, a, b)
	})
}

// JSON has no way to write what is not UTF-8.
func TestNamesThatAreNotUTF8AreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		a := open(t, nodes, "a")
		_, err := a.Mutex("\x80").Acquire(t.Context())
		require.NoError(t, err)
		l, err := a.Mutex("\x81").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second * 5)
		require.NoError(t, l.Release(t.Context()))
		right(t, a)
	})
}

// Close has ended the lease, and waits for a node that does not answer.
func TestAReleaseWhileTheClientIsClosedIsNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		a, b := open(t, nodes, "a"), open(t, nodes, "b")
		lease, err := a.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(4 * time.Second) // all nodes have it
		nodes.Pause(2)
		go func() {
			<-lease.Context().Done()
			time.Sleep(200 * time.Millisecond) // it cleans up
			_ = lease.Release(context.Background())
		}()
		go a.Client.Close()
		time.Sleep(time.Millisecond)
		l, err := b.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, l.Release(t.Context()))
		right(t, a, b)
	})
}

// A jumping clock is one that counts a suspend.
type jumpingClock struct{ by atomic.Int64 }

func (c *jumpingClock) Now() redlock.Instant {
	return redlock.SystemClock().Now().Add(time.Duration(c.by.Load()))
}

// Timers stand still too, so the loss is told when a second goroutine has the lock for long. Only the lease's clock shows it.
func TestALeaseThatExpiredDuringASuspendIsNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		clock := &jumpingClock{}
		a := open(t, nodes, "a", func(c *redlock.Config) { c.Clock = clock })
		_, err := a.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		clock.by.Store(int64(time.Hour))
		for i := range 3 {
			nodes.StepClock(i, time.Hour)
		}
		time.Sleep(time.Millisecond)
		l, err := a.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(8 * time.Second)
		require.NoError(t, l.Release(t.Context()))
		right(t, a)
	})
}

// A disk that is full for a moment.
type failsOnce struct {
	bytes.Buffer
	n int
}

func (w *failsOnce) Write(p []byte) (int, error) {
	if w.n++; w.n == 5 {
		return 0, errors.New("no space left on device")
	}
	return w.Buffer.Write(p)
}

func TestWhatCouldNotBeWrittenIsInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		w := &failsOnce{}
		r := recorder.New(w, "p")
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: r.Hooks(redlock.Hooks{})})
		require.NoError(t, err)
		r.Watch(c)
		b, op := open(t, nodes, "b"), open(t, nodes, "op")
		l, err := c.Mutex("w").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		_, err = c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		require.NoError(t, op.ForceRelease(t.Context(), "x"))
		_, err = b.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		c.Close()
		b.Client.Close()
		j, err := audit.Read("j", &w.Buffer)
		require.NoError(t, err)
		k, err := audit.Read("k", b.journal)
		require.NoError(t, err)
		res := audit.Judge(audit.Options{}, j, k)
		require.EqualError(t, r.Err(), "no space left on device")
		require.Equal(t, audit.Violated, res.Verdict)
		require.Contains(t, res.LeftOut, "p: events that were not recorded, so that leases may be missing: 1")
	})
}

// stuck is a disk that does not answer.
type stuck struct{ answers chan struct{} }

func (w stuck) Write(p []byte) (int, error) {
	<-w.answers
	return len(p), nil
}

func TestNothingButTheHooksWaitsForADiskThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stuck{make(chan struct{}, 1)}
		w.answers <- struct{}{} // the start line
		r := recorder.New(w, "a")
		c, err := redlock.New(redlock.Config{Nodes: redlocktest.Start(t, 1).Nodes(), Hooks: r.Hooks(redlock.Hooks{})})
		require.NoError(t, err)
		lease, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait() // its line is being written
		r.Watch(c)
		require.NoError(t, r.Err())
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, c.Close())
		close(w.answers)
		require.NoError(t, r.Close())
	})
}
