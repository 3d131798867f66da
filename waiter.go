package redlock

import (
	"context"
	"strings"
	"time"
)

// A waiter is one contender's wait for a lock: what it knows from one refused round to the next (W2, W3).
type waiter struct {
	res        *resource
	attempts   int
	how        approach // of the next attempt
	inbox      *inbox   // gets hints of releases; nil before the first refusal, unless the lock was contended
	since      Instant  // when the inbox was made
	outages    int      // rounds without a quorum, one after another
	splits     int      // rounds that nobody won, one after another
	reserved   nodeSet  // nodes that reserved a key for this client, for the attempt that is being made
	handedOver bool     // this process released a key, and sent others no message, for the attempt that is being made
	won        *round   // the round that acquired the lock; nil: none has

	// What to undo when it gives up.
	queuedAt    nodeSet // nodes that have this client in a queue
	unannounced nodeSet // nodes where a key may be free and no other waiter got a message: all rely on this one

	arrival   int64   // when a node first queued it, in µs of that node's clock: its place in every queue; 0: none did
	polls     bool    // where it is queued, it is as a waiter that gets no messages
	pollUntil Instant // until then it polls too: the key is reserved for a client that polls, and may be dead
	cutOff    bool    // fewer nodes than a quorum answered when all were last asked
}

const (
	outageMin = 20 * time.Millisecond
	outageMax = time.Second
)

// begin is called before the first attempt. Where the lock was contended a moment ago, that attempt already behaves
// like one after a refusal: it asks one node first, and may enter the queue there.
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

// wait is called after a refused round. It gives back what the round did not use, decides how the next attempt is made
// (w.how), and sleeps until that attempt is worthwhile. It returns an error when ctx or the client has ended.
func (w *waiter) wait(ctx context.Context, c *Client, s *spec, r *round) error {
	entered := r.queueAt // where the round asked to be queued
	asked := w.how.probe
	probed := asked != nil
	answers, t := r.snapshot()
	w.recordQueues(answers, t, r.askedNodes(), entered)

	w.passOnUnused(c, asked, answers, entered)
	handedOver := w.handedOver && len(s.res.keys) > 1
	w.reserved, w.handedOver = 0, false
	if r.onlyStale() {
		return nil // only the ballot was too low: try again at once, above it
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
		// The first refusal. A node sends a message only to a client that has subscribed. So subscribe first, then ask
		// once more: that attempt enters the queue.
		w.listen(c)
		return w.awaitSubscription(ctx, c)
	}

	o := obstacleOf(answers, t.need, probed)
	var next *node
	if isOurs(o.owner) && o.at&entered == 0 {
		next = w.queueNode(c, o.at)
	}
	switch {
	case handedOver && (t.answered() || probed && t.denied > 0):
		// This process handed over one of the keys, but another key is held, or somebody was faster. Waiters of other
		// processes got no message of that release. Leave the queues, which passes the key on to them, and enter the
		// queues again with the next attempt.
		w.how.probe = c.probeFor(s.res)
		c.waiters.leave(s.res.keys, w.unannounced, w.inbox)
		w.queuedAt, w.unannounced = w.queuedAt&^w.unannounced, 0
		return w.sleep(ctx, c, obstacle{}, 0, c.protocol.random(c.roundTrip()))
	case next != nil:
		// None of the nodes that the owner has knows that we wait. Ask one of them next: its refusal queues us there.
		// On other nodes, this attempt may have left a key free, or reserved for this client. Leave their queues: that
		// passes the key on, so that the waiters there move too, and two queues of one lock become one again.
		w.how.probe = next
		c.waiters.leave(s.res.keys, w.unannounced, w.inbox)
		w.queuedAt, w.unannounced = w.queuedAt&^w.unannounced, 0
		return w.sleep(ctx, c, obstacle{}, 0, c.protocol.random(c.roundTrip()))
	case o.owner != "":
		// The usual case: one owner is in the way. Sleep until a message comes, or the key could expire.
		w.outages, w.splits = 0, 0
		return w.sleep(ctx, c, o, entered, o.free-c.cfg.Clock.Now().Sub(r.t0))
	case t.answered() || probed && t.denied > 0:
		// A split vote (W3). A random pause of a few round trips, longer each time, separates the contenders.
		w.outages = 0
		w.splits++
		return w.sleep(ctx, c, obstacle{}, 0, c.protocol.random(c.roundTrip()*time.Duration(2<<min(w.splits, 5))))
	case probed && w.how.probe != nil && w.how.probe != asked && asked.balks.Load() != 0:
		return nil // the node asked refused with an error, and probeFor chose another one: ask that at once
	default:
		// An outage: ask all nodes next, because the node asked first may be what is wrong.
		w.how.probe = nil
		w.splits = 0
		w.outages++
		// This waiter could not use its turn. Let others have theirs, and queue again when a quorum answers.
		c.waiters.leave(s.res.keys, w.queuedAt|w.unannounced, w.inbox)
		w.queuedAt, w.unannounced, w.arrival = 0, 0, 0
		return w.sleep(ctx, c, obstacle{}, 0, c.jitter(min(outageMin<<min(w.outages, 6), outageMax)))
	}
}

// passOnUnused passes on the reservations that the round did not use. asked is the node that was asked first, or nil.
func (w *waiter) passOnUnused(c *Client, asked *node, answers []answer, entered nodeSet) {
	switch {
	case asked != nil && answers[asked.index].vote != granted:
		// The other nodes were not asked, so their reservations are unused.
		c.waiters.leave(w.res.keys, w.reserved&^entered, w.inbox)
		if len(w.res.keys) > 1 { // the node asked may have reserved one key for us, and refused us another
			c.waiters.passOn(w.res.keys, w.reserved&entered, w.inbox)
		}
	case len(w.res.keys) > 1: // another of the keys is held, so the next waiter may have the reserved one
		c.waiters.passOn(w.res.keys, w.reserved, w.inbox)
	}
}

// sleep waits until d has passed, until a node reserves a key for this client, or until this process has released one.
// How much sooner than d it asks again depends on who is in the way (o) and on whether a message will tell it of the
// release. entered is where the last round asked to be queued.
func (w *waiter) sleep(ctx context.Context, c *Client, o obstacle, entered nodeSet, d time.Duration) error {
	lost := c.lostPoll()
	switch {
	case o.owner == "": // a pause, not a wait for an owner
	case !isOurs(o.owner):
		d = min(d, c.jitter(foreignPoll)) // another library, or a client that may not publish: no message will come
	case o.at&entered == 0:
		d = min(d, c.jitter(c.cfg.NodeTimeout)) // no node that the owner has queued us, so none sends a message
	case w.polls:
		d = min(d, c.jitter(c.deafPoll())) // we get no messages
	case strings.HasPrefix(o.owner, reservationPrefix):
		// Reserved for another client, which should be the next owner. If that client has died, no message follows. So
		// look again a little after the reservation's end.
		d = min(d+c.jitter(reservationTime), c.jitter(lost))
	default:
		d = min(d, c.jitter(lost)) // a message will come, unless it is lost
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
				w.how.probe = nil // it is our turn, on the node that decides: ask all at once
			}
			// Otherwise ask that node first. It may have reserved the key for another client: two queues become one.
			return nil
		case h.localRelease:
			w.how.probe = nil // ask all at once: the release went ahead on the same connections
			return nil
		case o.owner != "" && o.at&entered == 0 && isOurs(o.owner) && w.queueNode(c, o.at) != nil:
			return nil // by now a node that the owner has can queue us: ask again, to enter its queue
		}
		if h.poll {
			// The key is reserved for a client that polls. If it has died, no message follows: poll until it should
			// have used its turn.
			w.pollUntil = c.cfg.Clock.Now().Add(2*reservationTime + 2*c.deafPoll() + c.roundTrip())
			sooner(c.jitter(c.deafPoll()))
		}
		if h.resubscribed&entered != 0 {
			sooner(c.jitter(lost / 10)) // messages may have been lost while there was no subscription
		}
		select {
		case <-w.inbox.signal:
		case <-timer.C:
			if d >= lost/2 { // the node asked first was silent for long and may know nothing: ask all
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

// awaitSubscription waits until the subscription to the node that is asked first is confirmed, or is known not to come.
// It waits no longer than NodeTimeout.
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

// onlyStale reports whether nothing but the ballot was in the way: a quorum answered, no key was held, and some node
// refused the ballot as too low.
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
