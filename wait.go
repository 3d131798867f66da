package redlock

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"
)

// A waiting is one contender's wait for a lock, from refusal to refusal (W2, W3).
type waiting struct {
	attempts int
	probe    *node   // ask this one first
	ear      *ear    // hears of releases; nil until it is worth it
	hearing  nodeSet // the nodes that ear was subscribed to before the last round began
	last     *round  // the last round that ran its course
	outages  int     // rounds without a quorum, one after another
	splits   int     // rounds that nobody won, one after another
}

const (
	outageMin = 20 * time.Millisecond
	outageMax = time.Second
)

// ready is called before each round: what a node tells after this moment is heard, if it is in hearing.
func (w *waiting) ready(c *Client) {
	if w.ear != nil {
		w.hearing = c.watch.subscribed(w.ear)
	}
}

// begin listens for releases before the first round if the lock's messages are on the way here anyhow.
func (w *waiting) begin(c *Client, res *resource) {
	if c.watch.hears(res) {
		w.ear = c.watch.listen(res)
	}
}

func (w *waiting) end(c *Client) {
	if w.ear != nil {
		c.watch.forget(w.ear)
	}
}

// wait sleeps after a refused round until the next one is worth its while. It returns an error when ctx or
// the client has ended.
func (w *waiting) wait(ctx context.Context, c *Client, s *spec, r *round) error {
	probed := w.probe != nil
	w.last, w.probe = r, nil
	if r.onlyStale() {
		return nil // nothing but a ballot was in the way: try again above it
	}
	if w.ear == nil {
		// Whatever was released before the subscription stood went unheard, so ask once more after it.
		w.ear = c.watch.listen(s.res)
		w.probe = c.firstLive()
		return w.awaitSubscription(ctx, c)
	}
	answers, t := r.snapshot()
	p := prospectOf(answers, t.need, probed)
	w.probe = c.firstLive()
	switch {
	case p.owner != "":
		w.outages, w.splits = 0, 0
		return w.sleep(ctx, c, p, p.free-c.cfg.Clock.Now().Sub(r.t0))
	case t.answered() || probed && t.denied > 0:
		// W3: a split vote. A few round trips, at random, more as it goes on.
		w.outages = 0
		w.splits++
		return w.sleep(ctx, c, prospect{}, c.protocol.random(c.roundTrip()*time.Duration(2<<min(w.splits, 5))))
	default:
		w.probe = nil // the node asked first may be what is wrong
		w.splits = 0
		w.outages++
		return w.sleep(ctx, c, prospect{}, c.jitter(min(outageMin<<min(w.outages, 6), outageMax)))
	}
}

// A prospect is what a refused round tells about the next.
type prospect struct {
	owner string        // who is in the way, if it is one
	at    nodeSet       // the nodes that said so
	free  time.Duration // how long after the round began the way could be free by expiry, at the earliest
}

// prospectOf reads the answers. An owner is in the way who has so many nodes that no quorum is left without
// them, or the one node that was asked first. Nodes that granted are free; the silent are not counted on.
func prospectOf(answers []answer, need int, probed bool) prospect {
	left := make([]time.Duration, 0, len(answers))
	owners := map[string]nodeSet{}
	for i, a := range answers {
		switch {
		case a.denial != nil && a.denial.reason == held:
			at := owners[a.denial.owner]
			at.add(i)
			owners[a.denial.owner] = at
			if a.denial.left < 0 {
				left = append(left, math.MaxInt64)
			} else {
				left = append(left, a.denial.left)
			}
		case a.vote == granted || a.denial != nil:
			left = append(left, 0)
		}
	}
	var p prospect
	for owner, at := range owners {
		if len(answers)-at.len() < need || probed && len(left) == 1 {
			p.owner, p.at = owner, at
		}
	}
	slices.Sort(left)
	switch {
	case probed && len(left) == 1:
		p.free = left[0]
	case len(left) < need:
		p.free = math.MaxInt64
	default:
		p.free = left[need-1]
	}
	return p
}

// foreignPoll is how often a lock is asked for that another library holds.
const foreignPoll = 10 * time.Millisecond

// isToken reports whether it could be an owner token of this library's: 32 hexadecimal digits.
func isToken(owner string) bool {
	if len(owner) != 32 {
		return false
	}
	return strings.Trim(owner, "0123456789abcdef") == ""
}

// sleepMax bounds a sleep whose end nobody told: a key without expiry, or too few answers.
const sleepMax = time.Second

// sleep waits until d has passed, or until the owner in the way has released: by the word of a quorum of
// nodes, or of all that it was in the way on, or of this process.
func (w *waiting) sleep(ctx context.Context, c *Client, p prospect, d time.Duration) error {
	if d > c.cfg.MaxTTL {
		d = sleepMax
	}
	if p.owner != "" && !isToken(p.owner) {
		d = min(d, c.jitter(foreignPoll)) // another library's lock: its release is told to nobody
	}
	if p.at&^w.hearing != 0 {
		d = min(d, c.cfg.NodeTimeout) // the word of some node may have gone unheard
	}
	timer := c.timers.start(max(d, 0) + time.Millisecond/4)
	defer c.timers.stop(timer)
	for {
		if p.owner != "" {
			if heard := w.ear.heard(p.owner); heard.len() >= c.need || p.at&^heard == 0 {
				return nil
			}
		}
		select {
		case <-w.ear.signal:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ending:
			return ErrClosed
		}
	}
}

// awaitSubscription waits until a quorum of nodes send their release messages here, and the one to be asked
// first does; no longer than a round.
func (w *waiting) awaitSubscription(ctx context.Context, c *Client) error {
	timer := c.timers.start(c.cfg.NodeTimeout)
	defer c.timers.stop(timer)
	enough := func(s nodeSet) bool { return s.len() >= c.need && (w.probe == nil || s.has(w.probe.index)) }
	for !enough(c.watch.subscribed(w.ear)) {
		select {
		case <-w.ear.signal:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ending:
			return ErrClosed
		}
	}
	return nil
}

// firstLive is the first node that is connected and answers: every client that sees the same nodes picks the
// same, so that one node decides between those who wait. Asking it alone costs a round trip more than asking
// all at once, where of eight who do, one in eight times anybody wins (docs/protocol.md, W3).
func (c *Client) firstLive() *node {
	now := c.cfg.Clock.Now()
	for _, n := range c.nodes {
		if n.responsive(now) {
			return n
		}
	}
	return nil
}

// onlyStale reports whether a ballot was all that stood between this round and a quorum: no key was held, and
// enough nodes answered.
func (r *round) onlyStale() bool {
	answers, t := r.snapshot()
	stales := 0
	for _, a := range answers {
		if a.denial == nil {
			continue
		}
		if a.denial.reason == held {
			return false
		}
		stales++
	}
	return stales > 0 && t.answered()
}
