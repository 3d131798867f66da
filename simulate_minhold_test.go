package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// Minimum holds in the simulation: nobody else gets a lock before its minimum hold is over, and soon after that somebody does.

const tooEarly = "nobody gets a lock before its minimum hold is over"

// holdMinimum makes the world one in which most locks have a minimum hold. Its leases are much shorter than MaxTTL, so that a
// minimum hold may be shorter and longer than they are.
func (w *world) holdMinimum() {
	w.has.holds = true
	w.has.deceives, w.has.ordered = false, false // clocks are misread there on purpose; there, all locks are fair
	if w.ttl < 10*time.Second {
		w.ttl = 4 * time.Second // else MaxTTL leaves no room beside five NodeTimeouts
	}
	if w.seed%4 == 0 {
		w.has.fair = 50
	}
}

// longestHold is the longest minimum hold for which MaxTTL leaves room.
func (w *world) longestHold() time.Duration {
	return (w.ttl - 5*nodeTimeout - 3*time.Millisecond) * 100 / 101
}

// minHold gives most locks a minimum hold, and returns how long it is; 0: there is none.
func (k *worker) minHold(l redlock.Lock, as role) (redlock.Lock, time.Duration) {
	w := k.world
	if !w.has.holds || as != exclusive || k.id+1 == w.has.differs || k.chance(0.3) {
		return l, 0
	}
	d := time.Microsecond + k.upTo(w.longestHold())
	if k.chance(0.5) {
		d = time.Microsecond + k.upTo(w.ttl/8)
	}
	return l.WithMinHold(d), d
}

// A turn is a lease of a name, in true time.
type turn struct {
	call     *call
	token    string
	acquired time.Time
	until    time.Time // the end of its minimum hold, by the clock of its client; acquired if it has none
}

// trueTime is when the client's clock showed this.
func (c *caller) trueTime(at redlock.Instant) time.Time {
	return c.world.began.Add(time.Duration(float64(time.Duration(at)-c.origin) / c.rate))
}

// keeps records a lease with this minimum hold, or with none, and judges it beside all others, also those that were acquired
// later and recorded earlier, because a process stood still.
func (o *oracle) keeps(a *call, l *redlock.Lease, least time.Duration) {
	if !o.world.has.holds {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c, at := a.worker.caller, redlock.AcquiredAt(l)
	t := &turn{a, l.Token(), c.trueTime(at), c.trueTime(at.Add(least))}
	if a.forced {
		t.until = t.acquired
	}
	for _, name := range a.names {
		for _, other := range o.kept[name] {
			o.inTime(name, other, t)
			o.inTime(name, t, other)
		}
		o.kept[name] = append(o.kept[name], t)
	}
}

// inTime judges whether the later lease of the name came after the minimum hold of the earlier one. o.mu is held.
func (o *oracle) inTime(name string, earlier, later *turn) {
	w := o.world
	if later.token == earlier.token || later.acquired.Before(earlier.acquired) || !later.acquired.Before(earlier.until) || later.call.forced {
		return
	}
	// docs/safety.md names this limit: if a clock steps forward, a minimum hold can end early.
	if w.servers[w.clock].hasJumpedSince(earlier.acquired.Add(-5 * nodeTimeout)) {
		return
	}
	o.violate(tooEarly, "client %d got %s at %v, %v before the minimum hold of client %d was over, who had it at %v (%.8s)",
		later.call.worker.id+1, name, later.acquired.Sub(w.began), earlier.until.Sub(later.acquired), earlier.call.worker.id+1,
		earlier.acquired.Sub(w.began), earlier.token)
}

// endHolds records that the minimum holds of these names are over, or only those of this owner token, because somebody takes
// them away. o.mu is held.
func (o *oracle) endHolds(token string, names ...string) {
	for _, name := range names {
		for _, t := range o.kept[name] {
			if token == "" || t.token == token {
				t.until = t.acquired
			}
		}
	}
}

// keptUntil is when the last minimum hold of these names is over on all servers; now if there is none. o.mu is held.
func (o *oracle) keptUntil(names []string) time.Time {
	until := time.Now()
	for _, name := range names {
		for _, t := range o.kept[name] {
			if t.until == t.acquired {
				continue
			}
			drift := 2*time.Millisecond + t.until.Sub(t.acquired)/50 // the nodes keep it for longer by the drift of clocks
			if end := t.until.Add(drift + 2*o.world.slow()); end.After(until) {
				until = end
			}
		}
	}
	return until
}

// awaitHolds waits until all minimum holds are over.
func (w *world) awaitHolds() {
	if !w.has.holds {
		return
	}
	w.oracle.mu.Lock()
	until := w.oracle.keptUntil(append(slices.Clone(w.names), sharedNames...))
	w.oracle.mu.Unlock()
	time.Sleep(time.Until(until))
}

// giveUp has another client release the lease by its owner token, which ends the minimum hold too.
func (k *worker) giveUp(a *call, l *redlock.Lease) {
	w := k.world
	w.oracle.mu.Lock()
	w.oracle.endHolds(l.Token(), a.names...)
	w.oracle.mu.Unlock()
	other := w.clients[k.random.IntN(len(w.clients))]
	if other.id+1 == w.has.differs {
		other = k.caller
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
	defer cancel()
	for _, name := range a.names {
		err := other.current().ReleaseToken(ctx, name, l.Token())
		w.trace("client %d releases %s of client %d: %v", other.id+1, name, k.id+1, err)
	}
}

// hasJumpedSince reports whether the clock was set forward since then.
func (s *server) hasJumpedSince(then time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.jumpedAt.IsZero() && !s.jumpedAt.Before(then)
}

// tick has all clients call TryDo at each tick of an interval, each as much later than the first one as ever, as replicas of a
// job do. One of them runs the job each time. In some worlds, each is cut off from one of the servers at some moment: then at
// most one runs it. It reports whether all is as before.
func (w *world) tick() bool {
	random := rand.New(rand.NewPCG(w.seed, 59))
	apart := time.Duration(random.Int64N(int64(w.longestHold() - 4*nodeTimeout)))
	least := apart + 3*nodeTimeout
	interval := least + least/50 + 5*nodeTimeout + time.Duration(random.Int64N(int64(w.ttl)))
	// With one attempt at a time (OneByOne), the second round of a try waits until the server that is silent is given up.
	cut, isCut := []*link(nil), random.IntN(2) == 0 && w.seed%4 != 3
	late := map[*caller]time.Duration{}
	var cutting sync.WaitGroup
	for _, c := range w.clients {
		late[c] = time.Duration(random.Int64N(int64(apart) + 1))
		to, soon := w.servers[random.IntN(len(w.servers))].links[c.id], late[c]+time.Duration(random.Int64N(int64(w.slow())))
		if random.IntN(2) == 0 {
			soon = time.Duration(random.Int64N(int64(2 * interval)))
		}
		if isCut {
			cut = append(cut, to)
			cutting.Go(func() {
				time.Sleep(soon)
				hold([]*link{to}, +1)
			})
		}
	}
	for range 3 {
		next := time.Now().Add(interval)
		var all sync.WaitGroup
		var mu sync.Mutex
		ran, errs := 0, []error(nil)
		for _, c := range w.clients {
			if c.id+1 == w.has.differs {
				continue
			}
			takes := time.Duration(random.Int64N(int64(w.slow())))
			all.Go(func() {
				time.Sleep(late[c])
				did, err := c.current().Mutex("job").WithMinHold(least).TryDo(context.Background(), func(context.Context, *redlock.Lease) error {
					time.Sleep(takes)
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				if did {
					ran++
				}
				errs = append(errs, err)
			})
		}
		all.Wait()
		if isWrong := ran != 1 || errors.Join(errs...) != nil; ran > 1 || isWrong && !isCut {
			w.oracle.report(tooEarly, "of clients that tick within %v, with a minimum hold of %v every %v, %d ran; cut off: %v: %v",
				apart, least, interval, ran, isCut, errs)
			break
		}
		time.Sleep(time.Until(next))
	}
	cutting.Wait()
	hold(cut, -1)
	return !isCut || w.recovers()
}
