package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// judge runs for a while in which nothing is wrong: every node is up, reachable, votes, and has the right time. Then
// each answer can be compared with the true state, and what is left behind shows at once.
func (w *world) judge(workers []*worker) {
	if s := w.servers[w.clock]; s.stepped != 0 { // no lock is held
		s.step(-s.stepped)
	}
	if w.has.deceives { // every clock is read anew, and no fencing token is ahead of the clocks any more
		time.Sleep(6*time.Second + w.deception.shift())
	}
	if !w.recovers() {
		return
	}
	w.oracle.calms()
	w.trace("quiet")
	tidy := func() {}
	if w.has.stays {
		tidy = w.leaveKeys()
	}
	var done sync.WaitGroup
	for _, k := range workers {
		if k.id+1 != w.has.differs {
			done.Go(k.answer)
		}
	}
	done.Wait()
	w.storm()
	tidy()
	if w.has.impatient && !w.abandon() {
		return
	}
	if w.has.handsOver {
		w.adoptAtOnce(0)
	}
	w.awaitHolds()
	if w.has.holds && !w.tick() {
		return
	}
	if w.has.outOfStep && !w.outOfStep() {
		return
	}
	if w.has.dines {
		w.dine()
	}
	if w.has.shares {
		w.crowd()
	}
	if w.random.IntN(2) == 0 {
		w.closeAtWork()
	}
	// Everything that was sent has arrived, and so have the releases that answer it. A key that was given up or never
	// wanted is gone, however soon it would have expired.
	time.Sleep(w.ttl * 3 / 10)
	w.awaitHolds()
	w.lookForOrphans()
}

// leaveKeys has something stay on one server under the names of the locks: another program's, or what a dead holder left. No
// quorum needs that server, so the locks are as free as they were. The function removes it.
func (w *world) leaveKeys() (tidy func()) {
	random := rand.New(rand.NewPCG(w.seed, 29))
	s := w.servers[random.IntN(len(w.servers))]
	value := []string{anothers, deadHolders, deadMutes}[random.IntN(3)]
	names := append([]string{"storm"}, w.names...)
	for _, name := range names {
		s.tell("SET", name, value)
	}
	w.trace("node-%d has %q for %s", s.index+1, value, names)
	return func() {
		for _, name := range names {
			s.tell("DEL", name)
		}
	}
}

// recovers waits until nothing is left of the faults: every node votes for every client, and no key is there. At worst,
// a quarantine has just begun, or a key has just come back with old data.
func (w *world) recovers() bool {
	until := time.Now().Add(w.ttl + w.ttl/10 + 250*time.Millisecond + 8*time.Second)
	if d := w.deception; d != nil {
		until = until.Add(d.band + d.patience)
	}
	for {
		why, isLeftOver := w.unready()
		if why == "" {
			return true
		}
		if time.Now().After(until) {
			// Old data may have an expiry by a clock that was wrong when they were saved or loaded.
			if !isLeftOver || w.servers[w.clock].steppedAt.IsZero() {
				w.oracle.report(neverBack, "%s", why)
			}
			return false
		}
		time.Sleep(w.ttl/4 + 500*time.Millisecond)
	}
}

// unready is what is still wrong, or "", and whether that is a leftover key.
func (w *world) unready() (why string, isLeftOver bool) {
	for _, s := range w.servers {
		if left := s.locks(true); len(left) > 0 {
			return fmt.Sprintf("node-%d still has %v", s.index+1, left), true
		}
	}
	for _, c := range w.clients {
		if c.id+1 == w.has.differs {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		status := c.current().Status(ctx)
		cancel()
		for _, n := range status {
			if n.Err != nil {
				return fmt.Sprintf("client %d, %s: %v", c.id+1, n.Name, n.Err), false
			}
		}
	}
	return "", false
}

// answer is what a worker does during judge.
func (k *worker) answer() {
	w := k.world
	rounds := 2
	if w.has.impatient {
		rounds = 5
	}
	for range rounds {
		names := w.names[:1]
		if k.chance(0.3) {
			names = w.names
		}
		if w.has.shares && k.chance(0.5) {
			names = sharedNames[k.random.IntN(2):][:1]
		}
		patience, how := 40*w.ttl+10*time.Second, asPlain
		switch n := k.random.Float64(); {
		case n < 0.2:
			how = asTry
		case n < 0.45:
			patience = k.upTo(4 * w.slow())
		case n < 0.6, w.has.impatient && k.index > 0:
			patience = k.upTo(w.ttl / 2)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := k.once(ctx, names, how); err != nil && patience > 40*w.ttl && how == asPlain {
			w.oracle.report(stuck, "client %d: %s: %v", k.id+1, names, err)
		}
		cancel()
		k.sleep(k.upTo(w.ttl / 20))
	}
}

// storm has everybody try at the same moment. Somebody must win (T2).
func (w *world) storm() {
	var all sync.WaitGroup
	var mu sync.Mutex
	var won []*redlock.Lease
	var lost []error
	for _, c := range w.clients {
		if c.id+1 == w.has.differs {
			continue
		}
		for range 2 {
			all.Go(func() {
				l, err := c.current().Mutex("storm").TryAcquire(context.Background())
				mu.Lock()
				defer mu.Unlock()
				if won = append(won, l); err != nil {
					won = won[:len(won)-1]
					lost = append(lost, err)
				}
			})
		}
	}
	all.Wait()
	if len(won) != 1 {
		w.oracle.report(nobodyWon, "%d won of %d: %v", len(won), len(won)+len(lost), lost)
	}
	for _, l := range won {
		_ = l.Release(context.Background())
	}
	time.Sleep(4 * w.slow())
}

// abandon has one client wait, give up, and lose its connections. When the holder releases, the next waiter has its turn:
// nothing is reserved for the one that has gone (W2). It reports whether all is as before.
func (w *world) abandon() bool {
	if w.has.clients < 3 || w.has.differs > 0 || w.has.mute > 0 {
		return true
	}
	const name = "abandoned"
	holder, gone, next := w.clients[0].current(), w.clients[1], w.clients[2].current()
	held, err := holder.Mutex(name).Acquire(context.Background())
	if err != nil {
		w.oracle.report(stuck, "%s: %v", name, err)
		return true
	}
	ctx, giveUp := context.WithTimeout(context.Background(), 10*w.slow())
	_, err = gone.current().Mutex(name).Acquire(ctx)
	giveUp()
	w.trace("client %d gives up: %v", gone.id+1, err)
	time.Sleep(4 * w.slow())
	for _, s := range w.servers {
		s.links[gone.id].hold(requests, +1)
		s.links[gone.id].hold(replies, +1)
	}
	var waiting sync.WaitGroup
	var got time.Time
	waiting.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l, err := next.Mutex(name).Acquire(ctx)
		if got = time.Now(); err != nil {
			w.oracle.report(stuck, "%s: %v", name, err)
			return
		}
		_ = l.Release(context.Background())
	})
	time.Sleep(10 * w.slow())
	free := time.Now()
	_ = held.Release(context.Background())
	waiting.Wait()
	if late := got.Sub(free); late > 8*w.slow() {
		w.oracle.report(leftFree, "client %d has given up, and the next waiter gets in after %v", gone.id+1, late)
	}
	for _, s := range w.servers {
		s.links[gone.id].hold(requests, -1)
		s.links[gone.id].hold(replies, -1)
	}
	return w.recovers()
}

// outOfStep sets the one clock that may step, has everybody try and adopt at the same moment, and puts it right again. What
// that server grants does not count (C1), but it is in the way of others. It reports whether all is as before.
func (w *world) outOfStep() bool {
	random := rand.New(rand.NewPCG(w.seed, 23))
	by := time.Second + time.Duration(random.Int64N(int64(maxStep-time.Second))) // far more than any ClockBand
	if random.IntN(2) == 0 {
		by = -by
	}
	s := w.servers[w.clock]
	s.step(by)
	w.trace("clock of node-%d is set by %v", s.index+1, by)
	for range 3 {
		w.storm()
	}
	if w.has.handsOver {
		w.adoptAtOnce(1)
	}
	s.step(-by) // no lock is held
	w.trace("clock of node-%d is set right", s.index+1)
	return w.recovers()
}

// closeAtWork closes all clients in the middle of attempts (L2).
func (w *world) closeAtWork() {
	var all sync.WaitGroup
	for _, c := range w.clients {
		client, random := c.current(), rand.New(rand.NewPCG(w.seed, uint64(1000+c.id)))
		for range 2 {
			name := w.names[random.IntN(len(w.names))]
			before := time.Duration(random.Int64N(int64(2 * w.slow())))
			all.Go(func() {
				time.Sleep(before)
				_, _ = client.Mutex(name).Acquire(context.Background()) // until the client is closed
			})
		}
		when := time.Duration(random.Int64N(int64(6 * w.slow())))
		all.Go(func() {
			time.Sleep(when)
			_ = client.Close()
		})
	}
	all.Wait()
	w.trace("all clients are closed")
}

// calms records that nothing is wrong from now on.
func (o *oracle) calms() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quiet = true
}
