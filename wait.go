package redlock

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A waiting is one contender's wait for a lock, from refusal to refusal (W2, W3).
type waiting struct {
	attempts int
	probe    *node  // ask this one first
	ear      *ear   // hears of releases; nil until it is worth it
	last     *round // the last round that ran its course
	outages  int    // rounds without a quorum, one after another
	splits   int    // rounds that nobody won, one after another
}

const (
	outageMin = 20 * time.Millisecond
	outageMax = time.Second
)

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
		return w.awaitSubscription(ctx, c)
	}
	answers, t := r.snapshot()
	owner, free := prospect(answers, t.need)
	switch {
	case t.answered() && owner != "":
		w.outages, w.splits = 0, 0
		return w.sleep(ctx, c, owner, free-c.cfg.Clock.Now().Sub(r.t0))
	case t.answered() || probed && t.denied > 0:
		// W3: a split vote. A few round trips, at random, more as it goes on; and ask one node first, the
		// same one as all others do, so that it decides between us.
		w.outages = 0
		w.splits++
		w.probe = c.firstLive()
		return w.sleep(ctx, c, "", rand.N(c.roundTrip()*time.Duration(2<<min(w.splits, 5))))
	default:
		w.splits = 0
		w.outages++
		return w.sleep(ctx, c, "", jitter(min(outageMin<<min(w.outages, 6), outageMax)))
	}
}

// prospect reads in the answers of a refused round who holds the lock on so many nodes that no quorum is
// left without them, if anybody does, and how long after the round began a quorum could be free at the
// earliest: nodes that granted are, those that are silent are not counted.
func prospect(answers []answer, need int) (owner string, free time.Duration) {
	left := make([]time.Duration, 0, len(answers))
	owners := map[string]int{}
	for _, a := range answers {
		switch {
		case a.vote == granted:
			left = append(left, 0)
		case a.denial != nil && a.denial.reason == held:
			owners[a.denial.owner]++
			if a.denial.left < 0 {
				left = append(left, math.MaxInt64)
			} else {
				left = append(left, a.denial.left)
			}
		case a.denial != nil:
			left = append(left, 0)
		}
	}
	for o, count := range owners {
		if len(answers)-count < need {
			owner = o
		}
	}
	if len(left) < need {
		return owner, math.MaxInt64
	}
	slices.Sort(left)
	return owner, left[need-1]
}

// sleepMax bounds a sleep whose end nobody told: a key without expiry, or too few answers.
const sleepMax = time.Second

// sleep waits until d has passed, or until a quorum of nodes told that owner released, or this process did.
func (w *waiting) sleep(ctx context.Context, c *Client, owner string, d time.Duration) error {
	if d > c.cfg.MaxTTL {
		d = sleepMax
	}
	timer := c.timers.start(max(d, 0) + time.Millisecond/4)
	defer c.timers.stop(timer)
	for {
		if owner != "" && w.ear.heard(owner).len() >= c.need {
			return nil
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

// awaitSubscription waits until a quorum of nodes send their release messages here, no longer than a round.
func (w *waiting) awaitSubscription(ctx context.Context, c *Client) error {
	timer := c.timers.start(c.cfg.NodeTimeout)
	defer c.timers.stop(timer)
	for c.watch.subscribed(w.ear) < c.need {
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

// firstLive is the first node that is connected: every client that sees the same nodes picks the same.
func (c *Client) firstLive() *node {
	for _, n := range c.nodes {
		if _, up, _ := n.state(); up {
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
