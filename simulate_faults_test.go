package redlock_test

import (
	"context"
	"slices"
	"sync"
	"time"
)

// trouble causes faults for a while, one after the other, some at the same time.
func (w *world) trouble() {
	if w.has.calm {
		time.Sleep(time.Duration(1+w.random.IntN(3)) * w.ttl)
		return
	}
	var faults sync.WaitGroup
	end := w.began.Add(time.Duration(2+w.random.IntN(3)) * w.ttl)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(w.random.Int64N(int64(w.ttl / 2))))
		w.oracle.look()
		fault, lasting := w.fault()
		heal := fault()
		if heal == nil {
			continue
		}
		faults.Go(func() {
			time.Sleep(lasting)
			heal()
		})
	}
	faults.Wait()
}

// A kind is one kind of fault. begin starts it and returns what ends it; nil: it is over.
type kind struct {
	weight  int
	lasting time.Duration
	begin   func() (heal func())
}

// fault picks a fault and how long it lasts.
func (w *world) fault() (begin func() (heal func()), lasting time.Duration) {
	s := w.servers[w.random.IntN(w.forgetful())]
	c := w.clients[w.random.IntN(len(w.clients))]
	long := time.Duration(w.random.Int64N(int64(2 * w.ttl)))
	soon := time.Duration(w.random.Int64N(int64(w.ttl / 4)))
	how := w.random.IntN(3)
	once := func(what string, do func()) func() func() {
		return func() func() {
			w.trace("node-%d %s", s.index+1, what)
			do()
			return nil
		}
	}
	kinds := []kind{
		{30, long, w.divide}, // each client sees another part of the fleet
		{15, long, func() func() { return w.silence(s, c, how) }},
		{8, 0, once("resets a link", func() { s.links[c.id].reset() })},
		{17, soon, func() func() { return w.restart(s, how) }},
		{6, 0, once("is flushed", s.flush)},
		{4, 0, func() func() { s.save(); return nil }},
		{10, 0, w.stepClock},
		{10, long, func() func() {
			w.trace("client %d is suspended for %v", c.id+1, long)
			c.suspend()
			return c.resume
		}},
	}
	add := func(wanted bool, weight int, lasting time.Duration, begin func() func()) {
		if wanted {
			kinds = append(kinds, kind{weight, lasting, begin})
		}
	}
	add(true, 3, 0, once("forgets its scripts", s.forgetScripts))
	add(true, 4, 0, once("loses those who subscribe", s.deafen))
	add(!w.has.durable, 4, w.ttl/4+3*soon, func() func() { return w.promote(s) })
	add(w.has.durable, 20, w.ttl/4+3*soon, func() func() { return w.promote(s) })
	add(w.has.forces, 10, 0, func() func() { return w.force(c) })
	add(w.has.wrongClock, 25, w.ttl/4+2*soon, w.bootWrong)
	add(w.has.deceives, 40, w.ttl/4+2*soon, w.deceive)
	add(w.has.failsBack, 25, w.ttl/4+3*soon, func() func() { return w.failBack(s, s.failBack) })
	add(w.has.failsBackUnseen, 25, w.ttl/4+3*soon, func() func() { return w.failBack(s, s.failBackUnseen) })
	add(w.has.borrows, 40, w.ttl/4+3*soon, func() func() { return w.borrow(s) })

	add(w.has.raises, 25, 4*w.ttl, func() func() {
		last := w.servers[len(w.servers)-1]
		if w.raised {
			return nil // once: the second time, those of before were huge too
		}
		w.raised = true
		w.trace("node-%d is told huge ballots", last.index+1)
		last.raiseFence(hugeBallot)
		return func() {} // heal puts them right
	})
	add(true, 8, long, w.strikeAfterAcquire)
	add(w.has.splits, 60, soon, func() func() { return w.split(s) })

	all := 0
	for _, k := range kinds {
		all += k.weight
	}
	pick := w.random.IntN(all)
	for _, k := range kinds {
		if pick -= k.weight; pick < 0 {
			return k.begin, k.lasting
		}
	}
	panic("not reached")
}

// forgetful is how many servers may forget: the first ones. Where a client differs, they are a minority. If most of the
// nodes have forgotten the agreed configuration, the first client decides it anew (Q3).
func (w *world) forgetful() int {
	if w.has.differs != 0 {
		return (len(w.servers) - 1) / 2
	}
	return len(w.servers)
}

// divide cuts each client off from a minority of the servers, each client from another one.
func (w *world) divide() func() {
	var cut []*link
	for _, c := range w.clients {
		for _, s := range w.minority() {
			w.trace("client %d is cut off from node-%d", c.id+1, s.index+1)
			cut = append(cut, s.links[c.id])
		}
	}
	hold(cut, +1)
	return func() { hold(cut, -1) }
}

// divideAround leaves the clients this server and little else in common, until some time after unite is called.
func (w *world) divideAround(s *server) (unite func()) {
	others := slices.DeleteFunc(slices.Clone(w.servers), func(o *server) bool { return o == s })
	w.random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	minority := (len(w.servers) - 1) / 2
	var cut []*link
	for _, c := range w.clients {
		for i := range minority {
			cut = append(cut, others[i+c.id%2*minority].links[c.id])
		}
	}
	lasting := time.Duration(w.random.Int64N(int64(w.ttl)))
	w.trace("the clients have node-%d in common", s.index+1)
	hold(cut, +1)
	return func() {
		time.Sleep(lasting)
		hold(cut, -1)
	}
}

// hold holds up both directions of links, or lets them go on.
func hold(links []*link, by int) {
	for _, l := range links {
		l.hold(requests, by)
		l.hold(replies, by)
	}
}

// silence holds up one link: its requests, its replies, or both.
func (w *world) silence(s *server, c *caller, which int) func() {
	w.trace("link of client %d to node-%d is held, %d", c.id+1, s.index+1, which)
	both := func(by int) {
		if which != replies {
			s.links[c.id].hold(requests, by)
		}
		if which != requests {
			s.links[c.id].hold(replies, by)
		}
	}
	both(+1)
	return func() { both(-1) }
}

// strikeAfterAcquire ends as many servers as may fail, right after the next acquisition and before any renewal. Later they
// come back empty, so that they leave their quarantine while leases are renewed.
func (w *world) strikeAfterAcquire() func() {
	some := w.servers[:w.forgetful()]
	some = slices.Clone(some)
	w.random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:min(len(some), (len(w.servers)-1)/2)]
	var mu sync.Mutex
	var ended []*server
	over := false
	strike := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range some {
			if !over && !s.isUnnoticed() && s.end() {
				w.trace("node-%d ends right after an acquisition", s.index+1)
				ended = append(ended, s)
			}
		}
	}
	w.strike.Store(&strike)
	return func() {
		w.strike.CompareAndSwap(&strike, nil)
		mu.Lock()
		defer mu.Unlock()
		over = true
		for _, s := range ended {
			s.start(w.has.durable)
		}
	}
}

// split has a server flushed when it is about to run one of the plain commands of a light acquire.
func (w *world) split(s *server) func() {
	command := []string{"SET", "ZADD", "EVALSHA"}[w.random.IntN(3)]
	s.between(command, func() {
		w.trace("node-%d is flushed before a %s", s.index+1, command)
		s.flush()
	})
	return func() { s.between("", nil) }
}

// restart ends a server's process. The next one begins later, empty or with the saved data, or at once and empty.
func (w *world) restart(s *server, how int) func() {
	if s.isUnnoticed() || !s.end() {
		return nil
	}
	w.trace("node-%d ends, %d", s.index+1, how)
	if how == 2 {
		s.start(false)
		return nil
	}
	return func() { s.start(how == 1) }
}

// promote makes a replica of a server that falls behind, and later puts it in the server's place.
func (w *world) promote(s *server) func() {
	s.save()
	unite := w.divideAround(s)
	s.mu.Lock()
	saved, at, of := s.saved, s.savedAt, s.savedOf
	s.mu.Unlock()
	return func() {
		if of == "" || !s.end() {
			unite()
			return
		}
		w.trace("node-%d ends, and a stale replica is promoted", s.index+1)
		s.mu.Lock()
		s.saved, s.savedAt, s.savedOf = saved, at, of // what a durable server saved at its end is newer
		s.startLocked(true, s.promoted(s.newRun()))
		s.mu.Unlock()
		unite()
	}
}

// failBack makes a copy of a server that falls behind, and later has the server continue from the copy.
func (w *world) failBack(s *server, back func()) func() {
	s.save()
	unite := w.divideAround(s)
	return func() {
		w.trace("node-%d fails back to a copy", s.index+1)
		back()
		unite()
	}
}

// borrow has a server continue with the data of another one, which it was made a replica of, or whose files it got.
func (w *world) borrow(s *server) func() {
	of := w.servers[(s.index+1+w.random.IntN(len(w.servers)-1))%len(w.servers)]
	restarted := w.random.IntN(2) == 0
	unite := w.divideAround(s)
	return func() {
		w.trace("node-%d continues with the data of node-%d", s.index+1, of.index+1)
		s.withDataOf(of, restarted)
		unite()
	}
}

// force is an operator who takes a lock away.
func (w *world) force(c *caller) func() {
	name := w.names[w.random.IntN(len(w.names))]
	done := w.oracle.forces(name)
	ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
	defer cancel()
	err := c.current().ForceRelease(ctx, name)
	w.trace("client %d takes %s away: %v", c.id+1, name, err)
	done()
	return nil
}

// bootWrong restarts the one server whose clock may be wrong. It boots with a wrong clock, which is set right later.
func (w *world) bootWrong() func() {
	s := w.servers[w.clock]
	by := time.Duration(w.random.Int64N(int64(maxStep)))
	// Without a battery, the clock is behind. If it were ahead, it would end the leases that a durable server still
	// has. Nobody can notice such a step once it is undone.
	if w.random.IntN(4) > 0 || w.has.durable {
		by = -by
	}
	saved := w.random.IntN(2) == 0
	s.mu.Lock()
	idle := s.commands != nil && time.Since(s.steppedAt) > 3*w.ttl && s.stepped == 0
	s.mu.Unlock()
	if !idle {
		return nil
	}
	unite := w.divideAround(s)
	steps := time.Duration(w.random.Int64N(int64(w.ttl / 4)))
	return func() {
		s.mu.Lock()
		idle := s.stepped == 0 && time.Since(s.steppedAt) > 3*w.ttl
		s.mu.Unlock()
		if !idle || !s.end() {
			unite()
			return
		}
		s.mu.Lock()
		s.ahead += by
		s.stepped, s.steppedAt = by, time.Now()
		if by > 0 {
			s.jumpedAt = s.steppedAt
		}
		s.startLocked(saved || w.has.durable, s.newRun())
		s.mu.Unlock()
		w.trace("node-%d restarts with its clock set by %v, with old data: %v", s.index+1, by, saved)
		time.Sleep(steps)
		s.mu.Lock()
		away := s.stepped
		s.mu.Unlock()
		w.trace("clock of node-%d is set right", s.index+1)
		s.step(-away)
		for _, l := range s.links { // a client reads INFO when it connects
			l.reset()
		}
		unite()
	}
}

// stepClock sets the one server's clock. It comes back only when what expired too early would have expired anyway. A
// clock that goes ahead and comes back between two looks is like a key that was deleted by hand (docs/safety.md).
func (w *world) stepClock() func() {
	s := w.servers[w.clock]
	s.mu.Lock()
	idle := s.commands != nil && time.Since(s.steppedAt) > 3*w.ttl
	away := s.stepped
	s.mu.Unlock()
	if !idle {
		return nil
	}
	by := -away
	if away == 0 {
		by = time.Duration(w.random.Int64N(int64(2*w.ttl))) - w.ttl
		if w.random.IntN(2) == 0 {
			by = time.Duration(w.random.Int64N(int64(2*maxStep))) - maxStep
		}
	}
	w.trace("clock of node-%d is set by %v", s.index+1, by)
	s.step(by)
	return nil
}
