package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// clients are the scenarios in which clients come and go, or lose their subscriptions.
func clients() []Scenario {
	return []Scenario{
		{
			Name:   "close",
			Short:  "a client is closed while it acquires",
			Proves: "A client that is closed while it acquires leaves no key behind.",
			Faults: []string{"delay the network of A a little", "close A's client at different moments of an acquire", "open it again"},
			Costs:  "nothing",
			// The others finish the acquire, and get a lock that nobody releases.
			Fails:  []string{"get-del", "single", "setnx-expire", "plain-redlock"},
			Actors: 2,
			MinTTL: 5 * time.Second, Orphan: 0.5, // so that a key that expires can be distinguished from one that is cleaned up
			Play: closeWhileAcquiring,
		},
		{
			Name:   "subscriptions-killed",
			Short:  "servers end every subscription",
			Proves: "While the servers repeatedly end every subscription, contenders still acquire the lock, one at a time.",
			Faults: []string{"CLIENT KILL TYPE pubsub every 20ms on every node, while many clients wait for many locks"},
			Costs:  "the time until waiters without a notification try again",
			Actors: 2, Needs: Needs{Server: true},
			Play: subscriptionsKilled,
		},
	}
}

// restart closes an actor's client and opens a new one, like a process that restarts.
func (s *Stage) restart(ctx context.Context, a *traffic.Actor) error {
	return errors.Join(s.Close(a), s.Reopen(ctx, a))
}

// closeDelay is the delay of the first node in each direction. Each further node has a larger delay. So at a close some
// nodes have received the acquire and some have not. Baselines give a command 50 ms.
const closeDelay = 4 * time.Millisecond

func closeWhileAcquiring(ctx context.Context, s *Stage) error {
	for _, moment := range []time.Duration{1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40} { // milliseconds
		var slow []fault.Fault
		for i, f := range each(fault.Delay, s.Site.Nodes()) {
			f.By = min(closeDelay*time.Duration(i+1), 5*closeDelay)
			slow = append(slow, f.For(s.A.ID))
		}
		if err := s.Begin(ctx, slow...); err != nil {
			return err
		}
		got := make(chan *traffic.Held, 1)
		go func() { got <- s.TryOnce(ctx, s.A, s.TTL) }()
		err := s.Sleep(ctx, moment*time.Millisecond)
		err = errors.Join(err, s.Close(s.A))
		a := <-got
		err = errors.Join(err, s.Heal(ctx, slow...))
		if a != nil {
			s.Release(ctx, a) // it may have been acquired before the close, which then released it
		}
		// So that observers see a key that was left behind before B can set it.
		if err = errors.Join(err, s.Sleep(ctx, s.TTL/50)); err != nil {
			return err
		}
		began := time.Now()
		b := s.Try(ctx, s.B, s.TTL+s.TTL/2)
		took := time.Since(began)
		s.Expect(b != nil && took < s.TTL/2, "another client gets the lock soon after a close %dms into an acquire", moment)
		s.Done(ctx, b)
		if err := s.Reopen(ctx, s.A); err != nil {
			return err
		}
		if b == nil || took >= s.TTL/2 {
			s.Log.Note("the other client tried for %v (acquired: %t)", took, b != nil)
			break // shown: the other moments would only repeat it
		}
	}
	return s.Sleep(ctx, s.TTL*7/10) // so that the judge notices a key that stays
}

const (
	manyLocks   = 60
	manyWaiters = 3 // of each actor, for each lock
)

func subscriptionsKilled(ctx context.Context, s *Stage) error {
	going, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	work := func(a *traffic.Actor, g *traffic.Guarded) {
		r := s.Fork()
		wg.Go(func() { a.Work(ctx, going, g, s.Pace(), r) })
	}
	for i := range manyLocks {
		g := traffic.NewGuarded(fmt.Sprintf("chaos/many-%d", i+1))
		for range manyWaiters {
			work(s.A, g)
			work(s.B, g)
		}
	}
	work(s.A, s.Lock)
	work(s.B, s.Lock)
	killing := each(fault.Unsubscribe, s.Site.Nodes())
	if err := s.Begin(ctx, killing...); err != nil {
		return err
	}
	for range 4 {
		s.Expect(s.AwaitGrants(ctx, 50, s.Patience()), "the locks are acquired while every subscription is killed")
		if err := s.Sleep(ctx, max(s.Length/8, s.TTL/2)); err != nil {
			return err
		}
	}
	return s.Heal(ctx, killing...)
}
