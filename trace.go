package redlock

import (
	"context"
	"sync/atomic"
	"time"
)

// How what Hooks.Traced is told is collected. Without that hook it costs nothing.

// maxTracedRounds is how many rounds of an acquisition a hook is told of: a waiter may have any number.
const maxTracedRounds = 32

// A tracing collects what Hooks.Traced gets of one call. nil: there is no such hook. It belongs to the call.
type tracing struct {
	client *Client
	ctx    context.Context
	op     Operation
}

// wallClock is what hooks are told of the time. Nothing else depends on it.
func wallClock() time.Time { return time.Now() }

func (c *Client) trace(ctx context.Context, op string, lease LeaseInfo) *tracing {
	return &tracing{c, context.WithoutCancel(ctx), Operation{Op: op, Lease: lease, Begun: wallClock()}}
}

func (c *Client) traceAcquire(ctx context.Context, op string, s *spec) *tracing {
	if c.cfg.Hooks.Traced == nil {
		return nil
	}
	return c.trace(ctx, op, LeaseInfo{Names: s.res.names})
}

func (l *Lease) trace(ctx context.Context, op string) *tracing {
	o := l.ownership
	if o.client.cfg.Hooks.Traced == nil {
		return nil
	}
	return o.client.trace(ctx, op, o.info())
}

// attempt is Client.attempt, and notes what came of it.
func (t *tracing) attempt(ctx context.Context, c *Client, s *spec, how approach) (*Lease, *round, error) {
	if t == nil {
		return c.attempt(ctx, s, how)
	}
	a := Attempt{Begun: wallClock()}
	lease, r, err := c.attempt(ctx, s, how)
	a.Took, a.Err = time.Since(a.Begun), err
	if r != nil {
		_, votes := r.snapshot()
		counted, _ := votes.counted()
		a.Granted, a.Denied = counted.len(), votes.denied
		a.Unknown = len(c.nodes) - a.Granted - a.Denied
		if lease == nil && err == nil {
			a.Err = r.refusal(s.res.names, c.nodes)
		}
	}
	t.op.add(a)
	return lease, r, err
}

// add keeps the first round and the last ones.
func (op *Operation) add(a Attempt) {
	if len(op.Rounds) == maxTracedRounds {
		op.Rounds = append(op.Rounds[:1], op.Rounds[2:]...)
		op.RoundsLeftOut++
	}
	op.Rounds = append(op.Rounds, a)
}

// acquired ends the trace of an acquisition.
func (t *tracing) acquired(lease *Lease, err error) {
	if t == nil {
		return
	}
	if lease != nil {
		t.op.Lease = lease.ownership.info()
	}
	t.end(err)
}

func (t *tracing) end(err error) {
	if t == nil {
		return
	}
	t.op.Took, t.op.Err = time.Since(t.op.Begun), err
	t.client.cfg.Hooks.Traced(t.ctx, t.op)
}

// A leaseTrace is what a lease remembers for the traces of its renewals. nil: there is no hook for them.
type leaseTrace struct {
	ctx     context.Context // the values of the context given to Acquire
	renewed atomic.Int64    // how many renewals that the scheduler began have ended
}

func (c *Client) traceLease(ctx context.Context) *leaseTrace {
	if c.cfg.Hooks.Traced == nil {
		return nil
	}
	return &leaseTrace{ctx: context.WithoutCancel(ctx)}
}

// traceRenewal tells of a renewal that the scheduler began. o.mu may be held.
func (o *ownership) traceRenewal(took time.Duration, err error) {
	t := o.traced
	if t == nil {
		return
	}
	o.client.cfg.Hooks.Traced(t.ctx, Operation{Op: "extend", Lease: o.info(), Begun: wallClock().Add(-took), Took: took,
		Err: err, Renewal: int(t.renewed.Add(1))})
}
