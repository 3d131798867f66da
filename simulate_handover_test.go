package redlock_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
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
	h := &handing{ticket: ticket, before: o.counts()}
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
			other.adopt(k, h, a.names, patience)
		})
	}
	adopters.Wait()
	o.ends(l)
	_ = l.Release(context.Background())
	o.released(a, false, nil)
	return h.by, h.taken
}

// A handing is a lease on its way from one client to another.
type handing struct {
	ticket redlock.Ticket
	before map[string]int // by name: how many leases there were when it was detached

	// Guarded by the oracle's mu:
	by    *call // who adopted it; nil: nobody did
	taken *redlock.Lease
}

// adopt has this client adopt the ticket. If it fails, it gives the ticket up: its own keys must not stay behind.
func (c *caller) adopt(k *worker, h *handing, names []string, patience time.Duration) {
	o, client, ticket := c.world.oracle, c.current(), h.ticket
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
			o.adopts(a, l, h)
			o.grants(a, l, false)
			o.keeps(a, l, 0)
			c.world.trace("client %d adopts %s, fencing token %d", c.id+1, strings.Join(names, "+"), l.Fence())
			return
		}
		if errors.Is(err, redlock.ErrNoQuorum) && time.Now().Before(until) {
			c.sleep(c.world.ttl / 10)
			continue
		}
		o.fails(a, err)
		for _, name := range names {
			_ = client.ReleaseToken(context.Background(), name, ticket.Token())
		}
		return
	}
}

// adoptAtOnce has everybody adopt one ticket at the same moment, and some give up soon. Nothing is wrong, or only one
// server's clock. So one gets the lock (D5), and the others are told so.
func (w *world) adoptAtOnce(which int) {
	var able []*caller
	for _, c := range w.clients {
		if c.id+1 != w.has.differs {
			able = append(able, c)
		}
	}
	random := rand.New(rand.NewPCG(w.seed, uint64(8000+which)))
	ctx, cancel := context.WithTimeout(context.Background(), 40*w.ttl+10*time.Second)
	defer cancel()
	giver := able[random.IntN(len(able))].current()
	var ticket redlock.Ticket
	if err := again(func() error {
		l, err := giver.Mutex(w.names[0]).Acquire(ctx)
		if err != nil {
			return err
		}
		if ticket, err = l.Detach(ctx); err != nil {
			_ = l.Release(ctx)
		}
		return err
	}); err != nil {
		w.oracle.report(wrongKind, "every node was there, and %s was not detached: %v", w.names[0], err)
		return
	}
	w.trace("all adopt %s: %s", w.names[0], ticket.Token()[:8])
	var all sync.WaitGroup
	var mu sync.Mutex
	var taken []*redlock.Lease
	var failed []error
	for _, c := range able {
		for i := range 2 {
			pause := time.Duration(random.Int64N(int64(w.slow())))
			ctx, stop, isPatient := ctx, func() {}, true
			if i == 0 && random.IntN(2) == 0 { // it gives up, perhaps when it has the keys of a quorum
				isPatient = false
				ctx, stop = context.WithTimeout(ctx, pause+time.Duration(random.Int64N(int64(3*w.slow()))))
			}
			all.Go(func() {
				defer stop()
				time.Sleep(pause)
				var l *redlock.Lease
				err := again(func() (err error) {
					l, err = c.current().Adopt(ctx, ticket)
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					taken = append(taken, l)
				} else if isPatient || !errors.Is(err, context.DeadlineExceeded) {
					failed = append(failed, err)
				}
			})
		}
	}
	all.Wait()
	switch {
	case len(taken) > 1:
		w.oracle.report(twoAdopters, "%d of those who adopted %s at once", len(taken), w.names[0])
	case len(taken) == 0:
		w.oracle.report(nobodyWon, "of %d who adopted %s at once: %v", len(failed), w.names[0], failed)
	}
	for _, err := range failed {
		// ErrTicketUsed matches ErrHeld.
		if errors.Is(err, redlock.ErrTicketUsed) && len(taken) == 0 || !errors.Is(err, redlock.ErrHeld) {
			w.oracle.report(wrongKind, "%d adopted %s, and another was told: %v", len(taken), w.names[0], err)
		}
	}
	time.Sleep(4 * w.slow()) // what the others give back has arrived
	for _, l := range taken {
		if err := l.Release(ctx); err != nil {
			w.oracle.report(wrongKind, "who adopted %s released it, and was told: %v", w.names[0], err)
		}
	}
	time.Sleep(4 * w.slow())
}

// again repeats what fails because servers forgot their scripts in the time of the faults: they get them then.
func again(do func() error) (err error) {
	for range 4 {
		if err = do(); err == nil || !strings.Contains(err.Error(), "NOSCRIPT") {
			return err
		}
	}
	return err
}

// counts is how many leases there have been, by name.
func (o *oracle) counts() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.grantedOf)
}

// adopts records that a ticket was adopted: nobody did before, and nobody got a lease of its names since it was detached.
func (o *oracle) adopts(a *call, l *redlock.Lease, h *handing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.by != nil {
		o.violate(twoAdopters, "clients %d and %d both adopted %s", h.by.worker.id+1, a.worker.id+1, a.names)
		return
	}
	h.by, h.taken = a, l
	if between := slices.IndexFunc(a.names, func(name string) bool { return o.grantedOf[name] != h.before[name] }); between >= 0 && !a.forced {
		o.violate(inTheGap, "client %d adopted %s, and somebody had %s since it was detached", a.worker.id+1, a.names, a.names[between])
	}
}
