package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// A caller is one process that uses the library: a client, its clock and its workers.
type caller struct {
	world  *world
	id     int
	cfg    redlock.Config
	origin time.Duration // of its clock, and of what it would call the time of day
	rate   float64

	mu        sync.Mutex // guards the rest
	client    *redlock.Client
	reopening bool
	asleep    time.Duration
	since     time.Time // when it was suspended; zero: it is not
	wake      chan struct{}
}

// A worker is one goroutine of a caller.
type worker struct {
	*caller
	index  int
	random *rand.Rand
}

// Now is the client's clock.
func (c *caller) Now() redlock.Instant {
	if c.world.has.closes {
		runtime.Gosched() // let another goroutine run
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := time.Since(c.world.began)
	if c.world.unaware {
		elapsed -= c.asleep
		if !c.since.IsZero() {
			elapsed -= time.Since(c.since)
		}
	}
	return redlock.Instant(c.origin + time.Duration(float64(elapsed)*c.rate))
}

func (c *caller) open() (err error) {
	c.client, err = redlock.New(c.cfg)
	return err
}

func (c *caller) current() *redlock.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// reopen closes the client after this time, in the middle of what its workers do, and opens another in its place.
func (c *caller) reopen(after time.Duration) {
	c.mu.Lock()
	busy := !c.since.IsZero() || c.reopening || c.world.isResting()
	c.reopening = c.reopening || !busy
	c.mu.Unlock()
	if busy {
		return
	}
	fresh, err := redlock.New(c.cfg)
	if err != nil {
		panic(err) // the same configuration was valid before
	}
	c.sleep(after)
	c.mu.Lock()
	old := c.client
	c.client = fresh
	c.mu.Unlock()
	c.world.trace("client %d is closed and opened", c.id+1)
	_ = old.Close()
	c.world.closed.Store(true)
	c.world.oracle.closed(old)
	c.mu.Lock()
	c.reopening = false
	c.mu.Unlock()
}

func (k *worker) chance(p float64) bool { return k.random.Float64() < p }

func (k *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(k.random.Float64() * float64(d))
}

// work is one worker's life. It takes locks, works under them and releases them until the world is at rest, and then
// once more.
func (k *worker) work() {
	w := k.world
	for {
		select {
		case <-w.resting:
			if k.id+1 == w.has.differs {
				return
			}
			// Every waiter gets in. At worst a quarantine has just begun, a lease is left that nobody releases, and
			// each of the others is about to hold the lock for as long as it ever does.
			ctx, cancel := context.WithTimeout(context.Background(), 40*w.ttl+10*time.Second)
			defer cancel()
			err := k.once(ctx, w.names[:1], inBrief)
			if errors.Is(err, redlock.ErrClosed) { // and opened again
				err = k.once(ctx, w.names[:1], inBrief)
			}
			if err != nil {
				w.oracle.report(stuck, "client %d: %s: %v", k.id+1, w.names[0], err)
			}
			for i := range sharedNames {
				if !w.has.shares {
					return
				}
				if err := k.once(ctx, sharedNames[i:][:1], inBrief); err != nil && !errors.Is(err, redlock.ErrClosed) {
					w.oracle.report(stuck, "client %d: %s: %v", k.id+1, sharedNames[i], err)
				}
			}
			return
		default:
		}
		names := w.names[:1]
		switch n := k.random.Float64(); {
		case n < 0.15:
			names = w.names[1:]
		case n < 0.35:
			names = w.names
		}
		if isKind("names") {
			names = w.names
		}
		if w.has.shares && (isKind("shared") || k.chance(0.6)) {
			names = sharedNames[k.random.IntN(2):][:1]
		}
		if w.has.closes && k.chance(0.1) {
			k.reopen(0)
		}
		ctx, cancel := context.WithTimeout(context.Background(), k.upTo(3*w.ttl))
		if k.chance(0.2) { // it ends while the round is running
			ctx, cancel = context.WithTimeout(context.Background(), k.upTo(w.ttl/25))
		}
		_ = k.once(ctx, names, asUsual)
		cancel()
		k.sleep(k.upTo(w.ttl / 4))
	}
}

// sleep is for workers: a suspended process does nothing.
func (c *caller) sleep(d time.Duration) {
	time.Sleep(d)
	c.mu.Lock()
	wake := c.wake
	c.mu.Unlock()
	if wake != nil {
		<-wake
	}
}

// How a worker works.
type manner int

const (
	asUsual manner = iota // as it comes
	inBrief               // wait, and be done soon
	asPlain               // brief, with an ordinary lock, so that its answer can be judged
	asTry                 // plain, without waiting
)

// lock describes what the worker wants.
func (k *worker) lock(client *redlock.Client, names []string, how manner) (l redlock.Lock, as role) {
	if k.chance(0.5) {
		names = slices.Clone(names)
		slices.Reverse(names)
	}
	l = client.Mutex(names[0], names[1:]...)
	if slices.Contains(sharedNames, names[0]) {
		l, as = k.sharedLock(client, names[0])
	} else if k.world.has.fair > 0 && k.chance(float64(k.world.has.fair)/100) {
		l = l.Fair()
	}
	if how == asPlain || how == asTry {
		return l, as
	}
	if k.chance(0.5) && !k.world.has.closes {
		l = l.WithoutRenewal()
	}
	if k.chance(0.1) && k.id+1 != k.world.has.differs { // a client that differs may have a smaller MaxTTL
		l = l.WithTTL(k.world.ttl/4 + k.upTo(k.world.ttl/2))
	}
	if how == asUsual && k.chance(0.1) {
		l = l.WithMaxHold(time.Millisecond + k.upTo(k.world.ttl))
	}
	return l, as
}

// once acquires, works and releases.
func (k *worker) once(ctx context.Context, names []string, how manner) error {
	w := k.world
	client := k.current()
	lock, as := k.lock(client, names, how)
	lock, least := k.minHold(lock, as)
	trying := how == asTry || how == asUsual && k.chance(0.2)
	acquire := lock.Acquire
	release := func(ctx context.Context, l *redlock.Lease) error { return l.Release(ctx) }
	a := w.oracle.begins(k, client, names, trying)
	a.role = as
	switch {
	case trying:
		acquire = lock.TryAcquire
	case w.has.elects && as == exclusive && len(names) == 1 && (isKind("leader") || k.chance(0.5)):
		acquire, release = k.campaign(a, client, names[0])
		least = 0
	}
	l, err := acquire(ctx)
	w.events.Add(1)
	if err != nil {
		w.oracle.fails(a, err)
		return err
	}
	if strike := w.strike.Swap(nil); strike != nil {
		(*strike)()
	}
	k.sleep(0)
	w.oracle.grants(a, l, k.chance(0.7))
	w.oracle.keeps(a, l, least)
	w.trace("client %d has %s, fencing token %d", k.id+1, strings.Join(names, "+"), l.Fence())
	if k.chance(0.1) {
		again, err := lock.Reentrant().TryAcquire(l.With(context.Background()))
		switch {
		case err == nil:
			if again.Token() == l.Token() {
				defer func() { _ = again.Release(context.Background()) }()
				break
			}
			w.oracle.keeps(a, again, least)
			_ = again.Release(context.Background()) // the first lease is over, and this one is not needed
		case errors.Is(err, redlock.ErrInvalid):
			w.oracle.report("no such error", "re-entry: %v", err)
		}
	}
	if k.chance(0.2) {
		l.Wanted()
	}
	isShared := slices.Contains(sharedNames, names[0])
	if how == asUsual && w.has.handsOver && !isShared && (isKind("handover") || k.chance(0.5)) {
		if a, l = k.handOver(a, l); l == nil {
			return nil
		}
	}
	if isShared {
		l = k.share(a, l, how)
	} else {
		k.hold(a, l, names, how)
	}
	valid := w.oracle.ends(l)
	if w.has.holds && how == asUsual && k.chance(0.1) {
		k.giveUp(a, l)
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
	defer cancel()
	err = release(ctx, l)
	w.oracle.released(a, valid, err)
	w.trace("client %d released %s, fence %d: %v", k.id+1, strings.Join(names, "+"), l.Fence(), err)
	return nil
}

// hold works under the lease: it reads both registers, takes its time, and writes.
func (k *worker) hold(a *call, l *redlock.Lease, names []string, how manner) {
	w := k.world
	fenced, bare := w.fenced[names[0]], w.bare[names[0]]
	before, admitted := fenced.read(l)
	if !l.Valid() {
		return
	}
	value, _ := bare.read(l)
	switch how {
	case asUsual:
		if w.has.closes && k.chance(0.3) { // at the very moment of a renewal
			k.reopen(max(0, redlock.NextRenewal(l)))
		}
		for range 1 + int(k.random.Float64()*2) {
			k.sleep(k.upTo(w.ttl * 2 / 3))
			w.oracle.look()
			if k.chance(0.2) {
				ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
				_ = l.Extend(ctx)
				cancel()
			}
		}
	case asPlain, asTry:
		k.sleep(k.upTo(w.ttl / 20))
	}
	if w.oracle.writes(a, l) { // and at once
		bare.write(l, value+1)
	}
	if how == asUsual && k.chance(0.2) { // a pause that the holder does not notice
		k.sleep(k.upTo(2 * w.ttl))
	}
	if admitted {
		fenced.write(l, before+1)
	}
}

// suspend stops a process: nothing that it sends or receives is delivered, and its workers do nothing.
func (c *caller) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since, c.wake = time.Now(), make(chan struct{})
		c.reach(+1)
	}
}

func (c *caller) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return
	}
	c.asleep += time.Since(c.since)
	c.since = time.Time{}
	close(c.wake)
	c.wake = nil
	c.reach(-1)
}

// reach holds up both directions of all the client's links, or lets them go on.
func (c *caller) reach(by int) {
	for _, s := range c.world.servers {
		s.links[c.id].hold(requests, by)
		s.links[c.id].hold(replies, by)
	}
}
