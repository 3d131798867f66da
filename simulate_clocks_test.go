package redlock_test

import (
	"math/rand/v2"
	"time"

	"github.com/quorumlock/redlock"
)

// Worlds in which a client may take a wrong time for a right one (Q1): a server's clock is far from the others' and yet in
// order, because the clock band is wide; or a client reads clocks over slow links, with a NodeTimeout that is not the others'.

// A deception is how clocks deceive in a world.
type deception struct {
	band, skew time.Duration
	apart      time.Duration // how far one server's clock is ahead, which is in order, until all is healed
	patience   time.Duration // the NodeTimeout of the second client
	lag        time.Duration // of its requests, while it is deceived; 0: none
}

// drawDeception draws from a source of its own, so that other worlds stay as they are.
func drawDeception(seed uint64, ttl time.Duration) *deception {
	r := rand.New(rand.NewPCG(seed, 31))
	d := &deception{skew: ttl/1000 + time.Duration(r.Int64N(int64(ttl/20))), patience: min(ttl*9/20, time.Second)}
	if r.IntN(2) == 0 {
		d.band = ttl + time.Duration(r.Int64N(int64(ttl)))
		d.apart = d.band/2 - ttl/20
	} else {
		d.lag = d.patience * 7 / 2 // it is cut off after four
	}
	return d
}

// shift is how far the clock is ahead for which one that is in order may be taken.
func (d *deception) shift() time.Duration { return max(d.apart, d.lag/2) }

func (d *deception) configure(cfg *redlock.Config, client int) {
	cfg.MaxClockSkew = d.skew
	if d.band > 0 {
		cfg.ClockBand = d.band
	}
	if client == 1 {
		cfg.NodeTimeout = d.patience
	}
}

// apart is the server whose clock that is.
func (w *world) apart() int { return (w.clock + 1) % w.has.nodes }

// deceive has the one server forget whose clock may be wrong. The second client, which is to be deceived, does not reach it;
// the others begin its quarantine by clocks that are right. Then its clock is set to what the second client takes for the
// time, and that client alone reaches it.
func (w *world) deceive() func() {
	s, d := w.servers[w.clock], w.deception
	s.mu.Lock()
	idle := s.commands != nil && time.Since(s.steppedAt) > 3*w.ttl && s.stepped == 0
	s.mu.Unlock()
	if !idle {
		return nil
	}
	far, third := w.servers[w.apart()], w.servers[(w.clock+2)%w.has.nodes]
	var apart, others []*link // the two clients hear different clocks; the links of the others to the server
	for _, c := range w.clients {
		if c.id == 1 {
			apart = append(apart, third.links[c.id])
		} else {
			apart, others = append(apart, far.links[c.id]), append(others, s.links[c.id])
		}
	}
	deceived := []*link{s.links[1]}
	hold(apart, +1)
	hold(deceived, +1)
	far.links[1].lag[requests].Store(int64(d.lag))
	w.trace("node-%d is flushed, and client 2 is to be deceived by %v", s.index+1, d.shift())
	s.flush()
	return func() {
		w.trace("clock of node-%d is set by %v", s.index+1, d.shift())
		hold(others, +1)
		s.step(d.shift())
		hold(deceived, -1)
		for until := time.Now().Add(2 * w.ttl); time.Now().Before(until) && !s.isJudged(); {
			time.Sleep(w.ttl / 50)
		}
		far.links[1].lag[requests].Store(0)
		if d.lag == 0 {
			time.Sleep(w.ttl / 4) // it agrees with the one that is far ahead
		}
		w.trace("clock of node-%d is set right, and it may grant: %v", s.index+1, s.isJudged())
		s.step(-d.shift())
		time.Sleep(w.ttl / 4)
		hold(others, -1)
		hold(apart, -1)
	}
}
