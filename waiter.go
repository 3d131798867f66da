package redlock

import (
	"context"
	"strings"
	"time"
)

// A waiter is one contender's wait for a lock, from refusal to refusal (W2, W3).
type waiter struct {
	res        *resource
	attempts   int
	how        approach // of the next attempt
	inbox      *inbox   // hears of releases; nil until it is worth it
	since      Instant  // when the ear began to listen
	outages    int      // rounds without a quorum, one after another
	splits     int      // rounds that nobody won, one after another
	reserved   nodeSet  // nodes that kept a key for this client, for the attempt that is being made
	handedOver bool     // this process has released a key, and told nobody else, for the attempt that is being made
	won        *round   // by which it has the lock; nil: it has not

	// What is to be undone when it gives up.
	queuedAt    nodeSet // nodes that entered this client among those who wait
	unannounced nodeSet // nodes where a key may have become free and nobody was told, because this waiter would take it

	arrival   int64   // when a node first entered it, by that node's clock, in µs: its place in every queue; 0: none did
	polls     bool    // it was last presented as one that hears no messages
	pollUntil Instant // until then it polls too: the lock went to one who may be dead, or may not tell of its release
	cutOff    bool    // too few nodes for a quorum answered when all were last asked
}

const (
	outageMin = 20 * time.Millisecond
	outageMax = time.Second
)

// begin is called before the first attempt.
func (w *waiter) begin(c *Client, res *resource) {
	w.res, w.how.reservation = res, ""
	if c.waiters.isContended(res) {
		w.listen(c)
		w.how.probe = c.probeFor(res)
		w.queueUp(c, w.how.probe)
	}
}

func (w *waiter) listen(c *Client) {
	w.inbox, w.since = c.waiters.listen(w.res), c.cfg.Clock.Now()
}

// wait sleeps after a refused round until the next one is worth its while. It returns an error when ctx or
// the client has ended.
func (w *waiter) wait(ctx context.Context, c *Client, s *spec, r *round) error {
	entered := r.queueAt
	asked := w.how.probe
	probed := asked != nil
	answers, t := r.snapshot()
	w.recordQueues(answers, t, entered)
	switch {
	case probed && answers[asked.index].vote != granted: // what is kept elsewhere was not asked for
		c.waiters.leave(s.res.keys, w.reserved&^entered, w.inbox)
		if len(s.res.keys) > 1 { // it may keep one of the keys for us, and was refused for another
			c.waiters.passOn(s.res.keys, w.reserved&entered, w.inbox)
		}
	case len(s.res.keys) > 1: // another of the keys is held: whoever waits for this one may have it
		c.waiters.passOn(s.res.keys, w.reserved, w.inbox)
	}
	favoured := w.handedOver && len(s.res.keys) > 1
	w.reserved, w.handedOver = 0, false
	if r.onlyStale() {
		return nil // nothing but a ballot was in the way: try again above it
	}
	w.how.probe = c.probeFor(s.res)
	if w.cutOff {
		w.how.probe = nil // the node asked first may be what is wrong
	}
	defer func() {
		n := w.how.probe
		if n == nil {
			n = c.probeFor(s.res)
		}
		w.queueUp(c, n)
	}()
	if t.denied > 0 {
		c.waiters.contend(s.res)
	}
	if w.inbox == nil {
		// A node keeps a key only for those who would hear of it, so ask once more when it is heard.
		w.listen(c)
		return w.awaitSubscription(ctx, c)
	}
	p := obstacleOf(answers, t.need, probed)
	var post *node
	if isOurs(p.owner) && p.at&entered == 0 {
		post = w.queueNode(c, p.at)
	}
	switch {
	case favoured && (t.answered() || probed && t.denied > 0):
		// Another of the keys is held, or this one by now. Whoever waits for what was released may have it; we then
		// enter the queues again.
		w.how.probe = c.probeFor(s.res)
		c.waiters.leave(s.res.keys, w.unannounced, w.inbox)
		w.queuedAt, w.unannounced = w.queuedAt&^w.unannounced, 0
		return w.sleep(ctx, c, obstacle{}, 0, c.protocol.random(c.roundTrip()))
	case post != nil:
		// No node where it is in the way knows that we wait: ask one of them to. Those who wait where it is not in
		// the way wait for a key that this attempt has just freed: they must move, too.
		w.how.probe = post
		c.waiters.leave(s.res.keys, w.unannounced, w.inbox)
		w.queuedAt, w.unannounced = w.queuedAt&^w.unannounced, 0
		return w.sleep(ctx, c, obstacle{}, 0, c.protocol.random(c.roundTrip()))
	case p.owner != "":
		w.outages, w.splits = 0, 0
		return w.sleep(ctx, c, p, entered, p.free-c.cfg.Clock.Now().Sub(r.t0))
	case t.answered() || probed && t.denied > 0:
		// W3: a split vote. A few round trips, at random, more as it goes on.
		w.outages = 0
		w.splits++
		return w.sleep(ctx, c, obstacle{}, 0, c.protocol.random(c.roundTrip()*time.Duration(2<<min(w.splits, 5))))
	case probed && w.how.probe != nil && w.how.probe != asked && asked.balks.Load() != 0:
		return nil // it refused: there is another to ask
	default:
		w.how.probe = nil // the node asked first may be what is wrong
		w.splits = 0
		w.outages++
		// It could not use its turn: let others have theirs, and queue again when a quorum answers.
		c.waiters.leave(s.res.keys, w.queuedAt|w.unannounced, w.inbox)
		w.queuedAt, w.unannounced, w.arrival = 0, 0, 0
		return w.sleep(ctx, c, obstacle{}, 0, c.jitter(min(outageMin<<min(w.outages, 6), outageMax)))
	}
}

// sleep waits until d has passed, until a node keeps a key for us, or until this process has released it.
func (w *waiter) sleep(ctx context.Context, c *Client, p obstacle, entered nodeSet, d time.Duration) error {
	lost := c.lostPoll()
	switch {
	case p.owner == "":
	case !isOurs(p.owner):
		d = min(d, c.jitter(foreignPoll)) // another library's lock: its release is told to nobody
	case p.at&entered == 0:
		d = min(d, c.jitter(c.cfg.NodeTimeout)) // nobody will tell us
	case w.polls:
		d = min(d, c.jitter(c.deafPoll()))
	case strings.HasPrefix(p.owner, reservationPrefix):
		// Kept for another, who holds it next. If that one has gone, nobody will tell: look once it should have it.
		d = min(d+c.jitter(reservationTime), c.jitter(lost))
	default:
		d = min(d, c.jitter(lost))
	}
	if c.cfg.Clock.Now() < w.pollUntil {
		d = min(d, c.jitter(c.deafPoll()))
	}
	d = max(d, 0) + time.Millisecond/4
	end := c.cfg.Clock.Now().Add(d)
	timer := c.timers.start(d)
	defer c.timers.stop(timer)
	sooner := func(in time.Duration) {
		if at := c.cfg.Clock.Now().Add(in); at < end {
			d, end = in, at
			timer.Reset(in)
		}
	}
	for {
		h := c.waiters.drain(w.inbox)
		if h.localRelease {
			w.unannounced, w.handedOver = c.allNodes(), true
		}
		switch {
		case h.reserved != 0:
			w.reserved, w.how.probe = h.reserved, c.probeFor(w.res)
			if n := w.how.probe; n != nil && h.reserved.has(n.index) && !c.isTight() {
				w.how.probe = nil // our turn: all at once
			}
			return nil // else it may be another's turn, too, where all should ask: the queues become one
		case h.localRelease:
			w.how.probe = nil // the release went ahead on the same connections
			return nil
		case p.owner != "" && p.at&entered == 0 && isOurs(p.owner) && w.queueNode(c, p.at) != nil:
			return nil // now somebody would tell us
		}
		if h.poll {
			w.pollUntil = c.cfg.Clock.Now().Add(2*reservationTime + 2*c.deafPoll() + c.roundTrip())
			sooner(c.jitter(c.deafPoll()))
		}
		if h.resubscribed&entered != 0 {
			sooner(c.jitter(lost / 10)) // what was told meanwhile, nobody heard
		}
		select {
		case <-w.inbox.signal:
		case <-timer.C:
			if d >= lost/2 { // it told nothing for long, and may know nothing: ask all
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

// awaitSubscription waits until the node to be asked first sends its messages here, or is known not to; no longer
// than a round.
func (w *waiter) awaitSubscription(ctx context.Context, c *Client) error {
	timer := c.timers.start(c.cfg.NodeTimeout)
	defer c.timers.stop(timer)
	for n := w.how.probe; n != nil && c.waiters.subscribedTo(1<<n.index) == 0 && !w.isDeafTo(c, n); {
		select {
		case <-w.inbox.signal:
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

// allNodes is the set of all nodes.
func (c *Client) allNodes() nodeSet { return nodeSet(1)<<len(c.nodes) - 1 }

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
