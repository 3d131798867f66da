package redlock_test

import (
	"sync"
	"time"
)

// trouble hurts the world for a while, one fault after another, some at the same time.
func (w *world) trouble() {
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

// fault picks one of what can go wrong, and how long it lasts. It returns what ends it; nil: it is over.
func (w *world) fault() (begin func() (heal func()), lasting time.Duration) {
	s := w.servers[w.random.IntN(len(w.servers))]
	c := w.clients[w.random.IntN(len(w.clients))]
	lasting = time.Duration(w.random.Int64N(int64(2 * w.ttl)))
	switch kind := w.random.IntN(100); {
	case kind < 30: // each client sees another part of the fleet
		return w.divide, lasting
	case kind < 45:
		return func() func() { return w.silence(s, c, w.random.IntN(3)) }, lasting
	case kind < 53:
		return func() func() {
			w.trace("link of client %d to node-%d is reset", c.id+1, s.index+1)
			s.links[c.id].reset()
			return nil
		}, 0
	case kind < 70:
		return func() func() { return w.restart(s, w.random.IntN(3)) }, time.Duration(w.random.Int64N(int64(w.ttl / 4)))
	case kind < 76:
		return func() func() {
			w.trace("node-%d is flushed", s.index+1)
			s.flush()
			return nil
		}, 0
	case kind < 80:
		return func() func() { s.save(); return nil }, 0
	case kind < 90:
		return w.stepClock, 0
	default:
		return func() func() {
			w.trace("client %d is suspended for %v", c.id+1, lasting)
			c.suspend()
			return c.resume
		}, lasting
	}
}

// divide cuts each client off from a minority of its own.
func (w *world) divide() func() {
	var cut []*link
	for _, c := range w.clients {
		for _, s := range w.minority() {
			w.trace("client %d is cut off from node-%d", c.id+1, s.index+1)
			cut = append(cut, s.links[c.id])
		}
	}
	for _, l := range cut {
		l.hold(requests, +1)
		l.hold(replies, +1)
	}
	return func() {
		for _, l := range cut {
			l.hold(requests, -1)
			l.hold(replies, -1)
		}
	}
}

// silence holds one link: its requests, its replies, or both.
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

// restart ends a server's process; another begins with nothing, with what was saved, or elsewhere at once.
func (w *world) restart(s *server, how int) func() {
	s.mu.Lock()
	down := s.commands == nil
	s.mu.Unlock()
	if down {
		return nil
	}
	w.trace("node-%d ends, %d", s.index+1, how)
	s.stop()
	if how == 2 {
		s.start(false)
		return nil
	}
	return func() { s.start(how == 1) }
}

// stepClock sets the one server's clock. It comes back only when what expired too early would have expired
// anyway: a clock that goes there and back between two looks cannot be told from a deleted key.
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
