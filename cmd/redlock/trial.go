package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

const (
	trialTime = 5 * time.Second
	// trialWait is how long the second client waits at the least, beside some round trips: longer than a round,
	// after which it has surely asked.
	trialWait = 300 * time.Millisecond
)

// try takes a lock on each node that votes, on that one alone, and lets another client wait for it: what the node's
// user may not do shows only where it is done. Problems go into the status.
func (o *operator) try(ctx context.Context, nodes []redlock.Node, status []redlock.NodeStatus) {
	var wg sync.WaitGroup
	for i := range nodes {
		s := &status[i]
		if s.Err != nil {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, trialTime)
			defer cancel()
			if err := o.tryNode(ctx, nodes[i], s.Latency); err != nil {
				s.Err = fmt.Errorf("it fails at what a lock needs: %w", err)
			}
		})
	}
	wg.Wait()
}

// tryNode goes through a lock's life on one node.
func (o *operator) tryNode(ctx context.Context, node redlock.Node, roundTrip time.Duration) (err error) {
	defer func() {
		if own := (*redlock.NodeError)(nil); errors.As(err, &own) {
			err = own.Err
		}
	}()
	holder, err := o.connect(ctx, []redlock.Node{node}, redlock.Hooks{})
	if err != nil {
		return err
	}
	defer holder.Close()
	failed := make(chan error, 1)
	waiter, err := o.connect(ctx, []redlock.Node{node}, redlock.Hooks{Refused: func(_ []string, err error) {
		if !errors.Is(err, redlock.ErrHeld) {
			select {
			case failed <- err:
			default:
			}
		}
	}})
	if err != nil {
		return err
	}
	defer waiter.Close()

	name := "doctor/" + rand.Text()
	lease, err := holder.Mutex(name).TryAcquire(ctx)
	if err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, trialWait+8*roundTrip)
	defer stop()
	if next, err := waiter.Mutex(name).Acquire(waiting); err == nil {
		return errors.Join(errors.New("it granted a lock twice"), next.Release(ctx))
	}
	_, inspected := holder.Inspect(ctx, name)
	err = errors.Join(inspected, lease.Extend(ctx), lease.Release(ctx))
	select {
	case refused := <-failed:
		return errors.Join(refused, err)
	default:
		return err
	}
}

// remedy follows what a server says that lets its user do too little.
func remedy(problem string) string {
	for _, sign := range []string{"NOPERM", "no permissions", "can't run this command"} {
		if strings.Contains(problem, sign) {
			return "; docs/operations.md has the rights that its user must have"
		}
	}
	return ""
}
