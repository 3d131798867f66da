package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/compare/internal/subject"
)

const (
	// grace is how long holders, and clients that are about to acquire, may continue after the end. Then waiting is
	// cancelled.
	grace = 300 * time.Millisecond
	// stuckAfter is how long to wait for a call that does not return. After that the whole comparison is aborted.
	stuckAfter = 30 * time.Second
	// linger is the time before a client is closed. Some libraries return from a release before all servers have it,
	// and would leave keys behind only because they are closed too early.
	linger = 100 * time.Millisecond
	// breather is the pause after a failure, so that a library that fails at once does not use all the time for
	// failing.
	breather = time.Millisecond
)

// A crew is a set of goroutines that acquire, hold and release repeatedly until stop.
type crew struct {
	meter    *meter
	load     Load
	clients  []subject.Client
	ctx      context.Context
	cancel   context.CancelFunc
	stopping atomic.Bool
	base     time.Time
	began    []atomic.Int64 // by goroutine: when its acquire began, since base; 0: it is not acquiring
	done     sync.WaitGroup
}

func startCrew(ctx context.Context, s subject.Subject, servers *Servers, l Load, prefix string, m *meter) (*crew, error) {
	c := &crew{meter: m, load: l, base: time.Now().Add(-1), began: make([]atomic.Int64, l.Goroutines)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	clients := max(1, l.Clients)
	for range clients {
		client, err := s.Open(ctx, subject.Options{URLs: servers.URLs(), Goroutines: l.Goroutines / clients})
		if err != nil {
			c.cancel()
			return nil, errors.Join(err, c.close())
		}
		c.clients = append(c.clients, client)
	}
	for g := range l.Goroutines {
		c.done.Go(func() { c.work(g, c.clients[g%clients], l.Keys.source(prefix, g, l.Goroutines)) })
	}
	return c, nil
}

func (c *crew) work(g int, client subject.Client, name func() string) {
	for !c.stopping.Load() && c.ctx.Err() == nil {
		began := time.Now()
		c.began[g].Store(int64(began.Sub(c.base)))
		lease, err := patient(c.ctx, client, name(), &c.stopping, c.meter.fail)
		if err != nil {
			break
		}
		waited := time.Since(began)
		if c.load.Hold > 0 {
			c.began[g].Store(0)
			time.Sleep(c.load.Hold)
		}
		// Not with ctx: a cancelled release would be measured, and would leave keys behind.
		if err := lease.Release(context.WithoutCancel(c.ctx)); err != nil {
			c.meter.fail(err)
			time.Sleep(breather)
			continue
		}
		c.meter.count(g, waited, time.Since(began))
	}
	c.began[g].Store(0)
}

// ErrStuck means that the measured load is still running, and would disturb everything after it.
var ErrStuck = errors.New("calls have not returned")

var errStopping = errors.New("stopping")

// patient tries until it has the lock, even if the library gives up earlier.
func patient(ctx context.Context, client subject.Client, name string, stopping *atomic.Bool, failed func(error)) (subject.Lease, error) {
	for {
		lease, err := client.Acquire(ctx, name)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failed(err)
		if stopping.Load() {
			return nil, errStopping
		}
		time.Sleep(breather)
	}
}

// admit records calls that are still waiting, and have waited longer than any recorded call. Otherwise a library that
// hangs would show only what it did before.
func (c *crew) admit() {
	now := time.Since(c.base)
	waits, cycles := c.meter.wait.Merge().Max(), c.meter.cycle.Merge().Max()
	for g := range c.began {
		began := time.Duration(c.began[g].Load())
		if began == 0 {
			continue
		}
		if age := now - began; age > waits {
			c.meter.wait.Record(g, age)
		}
		if age := now - began; age > cycles {
			c.meter.cycle.Record(g, age)
		}
	}
}

// stop ends the work and the clients.
func (c *crew) stop() error {
	c.stopping.Store(true)
	finished := make(chan struct{})
	go func() { c.done.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(grace):
		c.cancel()
		select {
		case <-finished:
		case <-time.After(stuckAfter):
			return fmt.Errorf("%w %v after their context ended", ErrStuck, stuckAfter)
		}
	}
	c.cancel()
	time.Sleep(linger)
	return c.close()
}

func (c *crew) close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// cycles returns how many cycles were counted.
func (c *crew) cycles(counted int64) float64 { return float64(counted) }
