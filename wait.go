package redlock

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"
)

// A waiting is one contender's wait for a lock, from refusal to refusal (W2, W3).
type waiting struct {
	attempts int
	how      approach // of the next attempt
	ear      *ear     // hears of releases; nil until it is worth it
	last     *round   // the last round that ran its course
	outages  int      // rounds without a quorum, one after another
	splits   int      // rounds that nobody won, one after another
	kept     nodeSet  // nodes that kept a key for this client, for the attempt that is being made
}

const (
	outageMin = 20 * time.Millisecond
	outageMax = time.Second
)

// begin is called before the first attempt.
func (w *waiting) begin(c *Client, res *resource) {
	w.how.claim = ""
	if c.watch.isContended(res) {
		w.ear = c.watch.listen(res)
		w.how.probe = c.firstLive()
		w.present(c, w.how.probe)
	}
}

// present lets the next attempt enter this client among those who wait, on the node that is asked first, if it
// would hear of it.
func (w *waiting) present(c *Client, n *node) {
	w.how.claim, w.how.enter = c.watch.me, 0
	if n != nil {
		w.how.enter = c.watch.hearing(1 << n.index)
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
	entered := r.enter
	probed := w.how.probe != nil
	w.last = r
	if w.kept != 0 && len(s.res.keys) > 1 { // another of the keys is held: whoever waits for this one may have it
		for _, key := range s.res.keys {
			c.watch.passOn(key, w.kept)
		}
	}
	w.kept = 0
	if r.onlyStale() {
		return nil // nothing but a ballot was in the way: try again above it
	}
	w.how.probe = c.firstLive()
	defer func() { w.present(c, cmp.Or(w.how.probe, c.firstLive())) }()
	answers, t := r.snapshot()
	if t.denied > 0 {
		c.watch.contend(s.res)
	}
	if w.ear == nil {
		// A node keeps a key only for those who would hear of it, so ask once more when it is heard.
		w.ear = c.watch.listen(s.res)
		return w.awaitSubscription(ctx, c)
	}
	p := prospectOf(answers, t.need, probed)
	switch {
	case p.owner != "" && isOurs(p.owner) && p.at&entered == 0 && c.watch.hearing(p.at) != 0:
		// No node where it is in the way knows that we wait: ask one of them to.
		w.how.probe = c.nodes[c.watch.hearing(p.at).first()]
		return w.sleep(ctx, c, prospect{}, 0, c.protocol.random(c.roundTrip()))
	case p.owner != "":
		w.outages, w.splits = 0, 0
		return w.sleep(ctx, c, p, entered, p.free-c.cfg.Clock.Now().Sub(r.t0))
	case t.answered() || probed && t.denied > 0:
		// W3: a split vote. A few round trips, at random, more as it goes on.
		w.outages = 0
		w.splits++
		return w.sleep(ctx, c, prospect{}, 0, c.protocol.random(c.roundTrip()*time.Duration(2<<min(w.splits, 5))))
	default:
		w.how.probe = nil // the node asked first may be what is wrong
		w.splits = 0
		w.outages++
		return w.sleep(ctx, c, prospect{}, 0, c.jitter(min(outageMin<<min(w.outages, 6), outageMax)))
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

const (
	// foreignPoll is how often a lock is asked for that another library holds.
	foreignPoll = 10 * time.Millisecond
	// lostPoll is how often it is asked for by those who should hear of it: a message may be lost.
	lostPoll = time.Second
)

// isOurs reports whether it could be what this library writes: an owner token, 32 hexadecimal digits, or that
// the key is kept for somebody.
func isOurs(owner string) bool {
	owner = strings.TrimPrefix(owner, keptPrefix)
	return len(owner) == 32 && strings.Trim(owner, "0123456789abcdef") == ""
}

// sleep waits until d has passed, until a node keeps a key for us, or until this process has released it.
func (w *waiting) sleep(ctx context.Context, c *Client, p prospect, entered nodeSet, d time.Duration) error {
	switch {
	case p.owner == "":
	case !isOurs(p.owner):
		d = min(d, c.jitter(foreignPoll)) // another library's lock: its release is told to nobody
	case p.at&entered == 0:
		d = min(d, c.jitter(c.cfg.NodeTimeout)) // nobody will tell us
	case strings.HasPrefix(p.owner, keptPrefix):
		d = c.jitter(lostPoll) // kept for another, who holds it next
	default:
		d = min(d, c.jitter(lostPoll))
	}
	timer := c.timers.start(max(d, 0) + time.Millisecond/4)
	defer c.timers.stop(timer)
	for {
		kept, local := c.watch.take(w.ear)
		switch {
		case kept != 0:
			w.kept, w.how.probe = kept, nil // our turn: all at once
			return nil
		case local:
			w.how.probe = nil // the release went ahead on the same connections
			return nil
		}
		select {
		case <-w.ear.signal:
			if p.owner != "" && p.at&entered == 0 && c.watch.hearing(p.at) != 0 {
				return nil // now somebody would
			}
		case <-timer.C:
			if d >= lostPoll/2 { // it told nothing for long, and may know nothing: ask all
				w.how.probe = nil
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ending:
			return ErrClosed
		}
	}
}

// awaitSubscription waits until the node to be asked first sends its messages here; no longer than a round.
func (w *waiting) awaitSubscription(ctx context.Context, c *Client) error {
	timer := c.timers.start(c.cfg.NodeTimeout)
	defer c.timers.stop(timer)
	for w.how.probe != nil && c.watch.hearing(1<<w.how.probe.index) == 0 {
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

// firstLive is the first node that answers and whose vote counts: every client that sees the same nodes picks
// the same, so that one node decides between those who wait. Asking it alone costs a round trip more than
// asking all at once, where of eight who do, one in eight times anybody wins (docs/protocol.md, W3).
func (c *Client) firstLive() *node {
	now := c.cfg.Clock.Now()
	median, known := c.medianClock()
	tolerance := toleranceOf(c.cfg.ClockBand)
	for _, n := range c.nodes {
		o := n.clock.Load()
		outOfStep := known && o != nil && isOutOfStep(time.Duration(o.offset-median)*time.Microsecond, o.rtt, tolerance)
		if !outOfStep && n.responsive(now) && n.isVoter() {
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
