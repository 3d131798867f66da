package redlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// A fairWorld is a world in which all want a fair lock, and each client has one waiter at most. So a node's queue shows
// which client has arrived. Clients die while they wait.
type fairWorld struct {
	*world
	dead []bool // by client: it is never resumed

	mu      sync.Mutex // guards the rest
	waiting []*fairWait
	ended   []*fairWait
	hurts   []hurt
}

// A fairWait is one Acquire of a fair lock.
type fairWait struct {
	client int
	waiter string // in the queues
	names  []string
	began  time.Time
	before []earlier // those that had arrived when it began
}

// An earlier waiter had a place on these servers.
type earlier struct {
	*fairWait
	servers []int
}

// A hurt is a fault by which a client's place on a server may be lost, or not be renewed in time.
type hurt struct {
	server, client int // -1: all
	from, to       time.Time
}

// lasting is after how long a place that a fault may have hurt is there again: the client has connected, the server has
// ended its quarantine, and the waiter has asked again.
func (w *fairWorld) lasting() time.Duration { return w.ttl + w.ttl/10 + 6*time.Second }

// hurt records a fault that begins now, and returns what to call when it is over.
func (w *fairWorld) hurt(server, client int) (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurts = append(w.hurts, hurt{server, client, time.Now(), time.Now().Add(time.Hour)})
	at := len(w.hurts) - 1
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hurts[at].to = time.Now().Add(w.lasting())
	}
}

// isHurt reports whether a fault may have cost the waiter its place on the server, or may do so now. w.mu is held.
//
// A server whose clock is wrong may be in no quorum (C1). A waiter that needs it for one cannot use its turn, and does not
// renew its place (O3).
func (w *fairWorld) isHurt(a *fairWait, server int) bool {
	return w.servers[server].isStepped() || slices.ContainsFunc(w.hurts, func(h hurt) bool {
		return (h.server < 0 || h.server == server) && (h.client < 0 || h.client == a.client) && h.to.After(a.began)
	})
}

// decisive reports whether a place on so many servers keeps others from the lock: every quorum has one of them, and
// they are a quorum themselves, without which the waiter would not renew its place.
func (w *fairWorld) decisive(servers int) bool { return servers > len(w.servers)/2 }

// hasPlace reports whether the server has the waiter in the queues of all these names.
func (s *server) hasPlace(waiter string, names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool {
		members, _ := s.redis.ZMembers("redlock:fair:ticket:" + name)
		return !slices.Contains(members, waiter)
	})
}

// begins records that a client asks, and who has arrived before it.
func (w *fairWorld) begins(client int, names []string) *fairWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiter := redlock.NextWaiter(w.clients[client].client)
	b := &fairWait{client: client, waiter: waiter, names: names, began: time.Now()}
	for _, a := range w.waiting {
		if !shareNames(a.names, names) {
			continue
		}
		var at []int
		for i, s := range w.servers {
			if !w.isHurt(a, i) && s.hasPlace(a.waiter, a.names) {
				at = append(at, i)
			}
		}
		if w.decisive(len(at)) {
			b.before = append(b.before, earlier{a, at})
		}
	}
	w.waiting = append(w.waiting, b)
	return b
}

// ends records that the call has ended. If it got the lock, nobody may wait that had arrived before it began.
func (w *fairWorld) ends(b *fairWait, granted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(a *fairWait) bool { return a == b })
	w.ended = append(w.ended, b)
	if !granted {
		return
	}
	for _, a := range b.before {
		kept := slices.DeleteFunc(slices.Clone(a.servers), func(s int) bool { return w.isHurt(a.fairWait, s) })
		if slices.Contains(w.waiting, a.fairWait) && w.decisive(len(kept)) {
			w.oracle.report(outOfOrder, "client %d got %s; client %d has waited for %v longer, with its place on nodes %v",
				b.client+1, b.names, a.client+1, b.began.Sub(a.began), kept)
		}
	}
}

func shareNames(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// contend is one Acquire, with the work under the lock.
func (w *fairWorld) contend(k *worker, patience time.Duration, names ...string) error {
	client := k.current()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	wait, a := w.begins(k.id, names), w.oracle.begins(k, client, names, false)
	l, err := client.Mutex(names[0], names[1:]...).Fair().Acquire(ctx)
	w.events.Add(1)
	w.ends(wait, err == nil)
	if err != nil {
		w.oracle.fails(a, err)
		return err
	}
	k.sleep(0)
	w.oracle.grants(a, l, true)
	w.trace("client %d has %s, fencing token %d", k.id+1, strings.Join(names, "+"), l.Fence())
	k.hold(a, l, names, asPlain)
	valid := w.oracle.ends(l)
	release, cancel := context.WithTimeout(context.Background(), w.ttl)
	defer cancel()
	err = l.Release(release)
	w.oracle.released(a, valid, err)
	w.trace("client %d released %s: %v", k.id+1, strings.Join(names, "+"), err)
	return nil
}

// runFair is the whole life of a fairWorld.
func (w *world) runFair() error {
	w.has.clients, w.has.mute, w.has.blocks, w.has.differs = 4+w.random.IntN(3), 0, 0, 0
	w.has.closes, w.has.durable = false, false
	f := &fairWorld{world: w, dead: make([]bool, w.has.clients)}
	defer func() {
		for id, c := range w.clients {
			if f.dead[id] {
				c.reach(-1)
			}
			_ = c.client.Close()
		}
		for _, s := range w.servers {
			s.stop()
		}
	}()
	if err := w.open(); err != nil {
		return err
	}
	var workers sync.WaitGroup
	var all []*worker
	for _, c := range w.clients {
		k := &worker{caller: c, index: c.id, random: rand.New(rand.NewPCG(w.seed, uint64(c.id+2)))}
		all = append(all, k)
		workers.Go(func() { f.work(k) })
	}
	f.trouble()
	f.heal()
	close(w.resting)
	workers.Wait()
	f.judge(all)
	return nil
}

// work is one client's life: it waits for the lock with more or less patience, until the world is at rest.
func (w *fairWorld) work(k *worker) {
	for !w.isResting() {
		names := w.names[:1]
		if k.chance(0.2) {
			names = w.names
		}
		patience := k.upTo(8 * w.ttl)
		if k.chance(0.3) {
			patience = k.upTo(w.ttl / 10)
		}
		_ = w.contend(k, patience, names...)
		k.sleep(k.upTo(w.ttl / 8))
	}
	if w.dead[k.id] {
		return
	}
	if err := w.contend(k, 40*w.ttl+20*time.Second, w.names...); err != nil {
		w.oracle.report(stuck, "client %d: %v", k.id+1, err)
	}
}

// trouble causes faults, some at the same time.
func (w *fairWorld) trouble() {
	if w.has.calm {
		time.Sleep(4 * w.ttl)
		return
	}
	var faults sync.WaitGroup
	for range 3 + w.random.IntN(8) {
		time.Sleep(time.Duration(w.random.Int64N(int64(w.ttl))))
		lasting := time.Duration(w.random.Int64N(int64(2 * w.ttl)))
		if heal := w.fault(); heal != nil {
			faults.Go(func() {
				time.Sleep(lasting)
				heal()
			})
		}
	}
	faults.Wait()
}

func (w *fairWorld) fault() (heal func()) {
	at, id := w.random.IntN(len(w.servers)), w.random.IntN(len(w.clients))
	s, c := w.servers[at], w.clients[id]
	switch n := w.random.IntN(100); {
	case n < 25: // one link
		over, heal := w.hurt(at, id), w.silence(s, c, w.random.IntN(3))
		return func() { heal(); over() }
	case n < 35:
		w.trace("node-%d resets a link", at+1)
		over := w.hurt(at, id)
		s.links[id].reset()
		over()
	case n < 55:
		over := w.hurt(at, -1)
		heal := w.restart(s, w.random.IntN(3))
		return func() {
			if heal != nil {
				heal()
			}
			over()
		}
	case n < 62:
		w.trace("node-%d is flushed", at+1)
		over := w.hurt(at, -1)
		s.flush()
		over()
	case n < 70:
		over := w.hurt(w.clock, -1)
		w.stepClock()
		over()
	case n < 75:
		w.trace("node-%d loses those who subscribe", at+1)
		s.deafen()
	case n < 80: // order must not depend on clocks
		w.setBack(time.Duration(w.random.Int64N(int64(w.ttl))))
	case n < 88: // a pause
		over := w.hurt(-1, id)
		w.trace("client %d is suspended", id+1)
		c.suspend()
		return func() { c.resume(); over() }
	case !w.dead[id] && w.living() > 2:
		w.trace("client %d dies", id+1) // what its goroutines still do reaches nobody
		w.hurt(-1, id)
		w.dead[id] = true
		c.reach(+1)
	}
	return nil
}

// setBack sets all clocks back. Keys and places last longer by that, and who asks now seems to have come earlier.
func (w *fairWorld) setBack(by time.Duration) {
	w.trace("all clocks are set back by %v", by)
	for _, s := range w.servers {
		s.step(-by)
		s.mu.Lock()
		s.stepped += by
		s.mu.Unlock()
	}
}

func (w *fairWorld) living() (count int) {
	for _, dead := range w.dead {
		if !dead {
			count++
		}
	}
	return count
}

// heal ends all faults. The dead stay dead.
func (w *fairWorld) heal() {
	for _, s := range w.servers {
		for id, l := range s.links {
			if w.dead[id] {
				continue
			}
			l.mu.Lock()
			held := l.held
			l.mu.Unlock()
			l.hold(requests, -held[requests])
			l.hold(replies, -held[replies])
		}
	}
	w.trace("healed")
}

// judge runs for a while in which nothing is wrong, beside waiters that time out again and again.
func (w *fairWorld) judge(workers []*worker) {
	if s := w.servers[w.clock]; s.stepped != 0 {
		s.step(-s.stepped)
	}
	time.Sleep(2*w.lasting() + w.ttl) // the dead have lost their places, and every node votes
	w.healed = time.Now()
	w.oracle.calms()
	w.trace("quiet")
	var done sync.WaitGroup
	for _, k := range workers {
		if w.dead[k.id] {
			continue
		}
		done.Go(func() {
			for range 6 {
				patience := 40*w.ttl + 10*time.Second
				if k.index%2 == 1 && k.chance(0.8) {
					patience = k.upTo(w.ttl / 4)
				}
				if err := w.contend(k, patience, w.names[:1]...); err != nil && patience > 40*w.ttl {
					w.oracle.report(stuck, "client %d: %v", k.id+1, err)
				}
				k.sleep(k.upTo(w.ttl / 20))
			}
		})
	}
	done.Wait()
	time.Sleep(w.ttl * 3 / 10)
	w.lookForOrphans()
	w.lookForPlaces()
}

// lookForPlaces reports what waiters have left in the queues.
func (w *fairWorld) lookForPlaces() {
	for _, s := range w.servers {
		for _, a := range w.ended {
			if a.began.After(w.healed) && s.hasPlace(a.waiter, w.names[:1]) {
				w.oracle.report(orphaned, "node-%d still has client %d in the queue", s.index+1, a.client+1)
			}
		}
	}
}
