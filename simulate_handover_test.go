package redlock_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// handOver detaches the lease, and has one or two clients adopt the ticket after a while. It returns the lease that took
// over, and its call; nil: there is none.
func (k *worker) handOver(a *call, l *redlock.Lease) (*call, *redlock.Lease) {
	w, o := k.world, k.world.oracle
	ctx, cancel := context.WithTimeout(context.Background(), k.upTo(w.ttl))
	defer cancel()
	ticket, err := l.Detach(ctx)
	before := o.counts()
	if err != nil {
		w.trace("client %d does not detach %s: %v", k.id+1, strings.Join(a.names, "+"), err)
		if l.Valid() { // the lease goes on
			return a, l
		}
		o.ends(l)
		_ = l.Release(context.Background())
		o.released(a, false, err)
		return a, nil
	}
	w.trace("client %d detaches %s: %s", k.id+1, strings.Join(a.names, "+"), ticket.Token()[:8])
	// The giver's lease is watched until the end: it must not be valid beside the taker's.
	var mu sync.Mutex
	var call *call
	var taken *redlock.Lease
	var adopters sync.WaitGroup
	for range 1 + k.random.IntN(2) {
		other := w.clients[k.random.IntN(len(w.clients))]
		if other.id+1 == w.has.differs {
			other = k.caller
		}
		pause, patience := k.upTo(w.ttl/2), k.upTo(2*w.ttl)
		if k.chance(0.5) {
			pause = 0
		}
		adopters.Go(func() {
			other.sleep(pause)
			b, m := other.adopt(k, ticket, a.names, patience, before)
			if m == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if taken != nil {
				o.report(twoAdopters, "clients %d and %d both adopted %s", call.worker.id+1, b.worker.id+1, a.names)
			}
			call, taken = b, m
		})
	}
	adopters.Wait()
	o.ends(l)
	_ = l.Release(context.Background())
	o.released(a, false, nil)
	return call, taken
}

// adopt has this client adopt the ticket. If it fails, it gives the ticket up: its own keys must not stay behind.
func (c *caller) adopt(k *worker, ticket redlock.Ticket, names []string, patience time.Duration, before map[string]int) (*call, *redlock.Lease) {
	o, client := c.world.oracle, c.current()
	text, err := ticket.MarshalText()
	if err != nil || ticket.UnmarshalText(text) != nil {
		o.report("no such error", "the ticket's text: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	until := time.Now().Add(patience)
	a := o.begins(&worker{caller: c, random: k.random, index: k.index}, client, names, true)
	for {
		l, err := client.Adopt(ctx, ticket)
		if err == nil {
			o.isAlone(a, before)
			o.grants(a, l, false)
			c.world.trace("client %d adopts %s, fencing token %d", c.id+1, strings.Join(names, "+"), l.Fence())
			return a, l
		}
		if errors.Is(err, redlock.ErrNoQuorum) && time.Now().Before(until) {
			c.sleep(c.world.ttl / 10)
			continue
		}
		o.fails(a, err)
		for _, name := range names {
			_ = client.ReleaseToken(context.Background(), name, ticket.Token())
		}
		return a, nil
	}
}

// counts is how many leases there have been, by name.
func (o *oracle) counts() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.grantedOf)
}

// isAlone records that a ticket was adopted: nobody else got a lease of its names since it was detached.
func (o *oracle) isAlone(a *call, before map[string]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if between := slices.IndexFunc(a.names, func(name string) bool { return o.grantedOf[name] != before[name] }); between >= 0 && !a.forced {
		o.violate(inTheGap, "client %d adopted %s, and somebody had %s since it was detached", a.worker.id+1, a.names, a.names[between])
	}
}
