package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/redlock"
)

// ErrNotLeader is why a replica does not run the jobs. The text has the reason.
var ErrNotLeader = errors.New("redlockgocron: not the leader")

// retryPause is how long an elector waits after an error that another try may not have: one of the configuration.
const retryPause = time.Second

// An Elector has one replica lead: the one that holds the lock. Give it to gocron.WithDistributedElector. It is safe for
// concurrent use, by any number of schedulers of one replica. Call [Elector.Close] when it is no longer needed.
//
// A goroutine waits for the lock, and keeps it for as long as it can. If the leader dies, another replica leads when the
// lock's TTL is over.
type Elector struct {
	lock   redlock.Lock
	settle time.Duration
	cancel context.CancelFunc
	ended  chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex // guards the rest
	lease *redlock.Lease
	since time.Time // when the lease was acquired
	why   error     // why there is no lease; nil: another has it, or it is not known
}

var _ gocron.Elector = (*Elector)(nil)

// An ElectorOption is for [NewElector].
type ElectorOption func(*Elector)

// Settle sets how long a replica that was just elected waits before it leads: longer than the replicas' ticks are apart.
// Otherwise it could run the tick that the last leader has run just before, if it ticks a little later. Default:
// [DefaultSpread]. A tick in that time is skipped. 0: it leads at once.
func Settle(d time.Duration) ElectorOption {
	return func(e *Elector) { e.settle = d }
}

// NewElector makes an Elector, which campaigns until it is closed. All replicas give it a lock of the same name, which
// nothing else uses. It is a [redlock.Client.Mutex]: of a semaphore, or of readers, several would lead.
// [redlock.Lock.WithTTL] sets how soon a dead leader is replaced. Errors are [redlock.ErrInvalid].
func NewElector(lock redlock.Lock, options ...ElectorOption) (*Elector, error) {
	if err := refusal(lock); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{lock: lock, settle: DefaultSpread, cancel: cancel, ended: make(chan struct{})}
	for _, option := range options {
		option(e)
	}
	if e.settle < 0 {
		cancel()
		return nil, fmt.Errorf("%w: Settle: %v is negative", redlock.ErrInvalid, e.settle)
	}
	if hasNoUnit(e.settle) {
		cancel()
		return nil, noUnit("Settle", e.settle)
	}
	go e.campaign(ctx)
	return e, nil
}

// IsLeader returns nil if this replica leads, and else [ErrNotLeader] with the reason. It does not wait and asks no node:
// the lease is valid by the clock.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.leading()
	return err
}

// Lease returns the lease by which this replica leads, for its context and its fencing token: a job that runs when the
// leader is replaced should end with [redlock.Lease.With]. The error is that of [Elector.IsLeader]. Do not release the
// lease; Close does.
func (e *Elector) Lease() (*redlock.Lease, error) { return e.leading() }

func (e *Elector) leading() (*redlock.Lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.lease == nil && e.why != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotLeader, e.why)
	case e.lease == nil:
		return nil, fmt.Errorf("%w: it does not have the lock", ErrNotLeader)
	case !e.lease.Valid():
		return nil, fmt.Errorf("%w: its lease has ended", ErrNotLeader)
	case time.Since(e.since) < e.settle:
		return nil, fmt.Errorf("%w: it was elected less than %v ago, and another may have run the tick", ErrNotLeader, e.settle)
	}
	return e.lease, nil
}

// Close gives up the lock, so that another replica can lead at once. It waits for the nodes, no longer than NodeTimeout.
// Jobs that run go on, but the context of the lease ends. Further calls do nothing.
func (e *Elector) Close() {
	e.cancel()
	<-e.ended
}

// campaign acquires the lock again and again, and keeps it, until ctx ends or the client is closed.
func (e *Elector) campaign(ctx context.Context) {
	defer close(e.ended)
	for {
		lease, err := e.lock.Acquire(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = errors.New("it was closed")
			}
			e.set(nil, err)
			if ctx.Err() != nil || errors.Is(err, redlock.ErrClosed) {
				return
			}
			pause(ctx, retryPause)
			continue
		}
		e.set(lease, nil)
		select {
		case <-lease.Context().Done():
		case <-ctx.Done():
		}
		e.set(nil, context.Cause(lease.Context()))
		_ = lease.Release(context.Background()) // after a loss too, so that nodes that still have the lock delete it
	}
}

func (e *Elector) set(lease *redlock.Lease, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease, e.why, e.since = lease, why, time.Now()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
