package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
)

// Elections in the simulation: a leader's lease is judged as any other, and so is what observers see.

// campaign acquires the name's lock as a candidate of an election, and releases it as its leader.
func (k *worker) campaign(a *call, client *redlock.Client, name string) (acquire func(context.Context) (*redlock.Lease, error),
	release func(context.Context, *redlock.Lease) error) {
	var term *election.Term
	acquire = func(ctx context.Context) (*redlock.Lease, error) {
		won, err := election.New(client, name, election.Options{Label: fmt.Sprint("client ", k.id+1)}).Campaign(ctx)
		if err != nil {
			return nil, err
		}
		k.world.oracle.leads(a)
		term = won
		return term.Lease(), nil
	}
	release = func(ctx context.Context, l *redlock.Lease) error {
		defer runtime.KeepAlive(term) // it is renewed until now
		if l != term.Lease() {        // it was handed over
			return l.Release(ctx)
		}
		return term.Resign(ctx)
	}
	return acquire, release
}

func (o *oracle) leads(a *call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a.leads = true
}

// observe watches the elections until ctx ends. The numbers of the leaders that an observer sees never fall.
func (w *world) observe(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, name := range w.names {
		e := election.New(w.clients[0].current(), name, election.Options{})
		all.Go(func() {
			highest := uint64(0)
			for leader := range e.Observe(ctx) {
				if leader.None() || leader.Number == 0 { // somebody has the lock and leads nothing
					continue
				}
				if leader.Number < highest {
					w.oracle.report(formerLeader, "%s: number %d after %d", name, leader.Number, highest)
				}
				highest = max(highest, leader.Number)
			}
		})
	}
}
