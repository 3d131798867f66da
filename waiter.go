package redlock

import (
	"context"
	"time"
)

// A waiter is one contender's wait for a lock (W2, W3). It owns its next attempt: how says how that is made. After each
// refused round, wait goes through these steps:
//
//	recordQueues    notes what the round left behind on the nodes
//	passOnUnused    gives back what the round did not use
//	know            gathers all that the next step depends on
//	decide          makes of it what to do next, and does nothing else (waiter_next.go)
//	carryOut        does it, and sleeps until the next attempt is worthwhile
//	queueUp         has that attempt enter a queue
type waiter struct {
	client   *Client
	res      *resource
	attempts int
	asked    int      // how often in a row it asked at once for other permits of a semaphore
	stales   int      // how often in a row only the ballot was too low
	how      approach // of the next attempt
	inbox    *inbox   // gets hints of releases; nil before the first refusal, unless the lock was contended
	since    Instant  // when the inbox was made
	turn     hints    // that it is this client's turn, which the attempt that is being made uses; zero: it is not
	won      *round   // the round that acquired the lock; nil: none has
	asks     bool     // an attempt is being made, whose refusal wait has not seen
	stays    *node    // in whose queue the next attempt stays, if it asks all at once; nil: that of the node asked first
	// metReaders says that it is a writer and readers have refused it: its later rounds leave its intent (S2).
	metReaders bool
	memory
}

// memory is what a waiter knows from one refused round to the next.
type memory struct {
	// What to undo when it gives up.
	queuedAt    nodeSet // nodes that have this client in a queue
	unannounced nodeSet // nodes where a key may be free and no other waiter got a message: all rely on this one
	unqueued    bool    // some node granted a lost attempt, and so took this client out of its queue

	arrival   int64   // when a node first queued it, in µs of that node's clock: its place in every queue; 0: none did
	polls     bool    // where it is queued, it is as a waiter that gets no messages
	pollUntil Instant // until then it polls too: the key is reserved for a client that polls, and may be dead
	cutOff    bool    // fewer nodes than a quorum answered when all were last asked
	outages   int     // rounds without a quorum, one after another
	splits    int     // rounds that nobody won, one after another
	turns     int     // turns that did not get the lock, one soon after another
	turnAt    Instant // when the last of them was over
	askedAll  Instant // when all nodes were last asked, or the wait began
}

// begin is called before the first attempt. Where the lock was contended a moment ago, that attempt already behaves
// like one after a refusal: it asks one node first, and may enter the queue there.
func (w *waiter) begin() {
	w.how.reservation, w.asks, w.askedAll = "", true, w.client.cfg.Clock.Now()
	if w.client.waiters.isContended(w.res) {
		w.listen()
		w.how.probe = w.client.probeFor(w.res)
		w.queueUp()
	}
}

func (w *waiter) listen() {
	w.inbox, w.since = w.client.waiters.listen(w.res), w.client.cfg.Clock.Now()
}

// wait is called after a refused round. It returns when the next attempt is worthwhile, or with an error when ctx or
// the client has ended.
func (w *waiter) wait(ctx context.Context, r *round) (err error) {
	w.asks = false
	defer func() { w.asks = err == nil }()
	w.how.lead = w.client.leadAfter(w.how.lead, r)
	w.how.all = false
	refused := w.look(r)
	w.recordQueues(&refused)
	if r.onlyStale() {
		return w.outbid(ctx)
	}
	w.stales = 0
	w.passOnUnused(&refused)
	turn := w.turn
	w.turn = hints{}
	if w.asksForOthers(r) {
		w.turn.reserved = turn.reserved // what these nodes keep for this client is not used yet
		return nil
	}
	if refused.votes.denied > 0 {
		w.client.waiters.contend(w.res)
	}
	if w.inbox == nil {
		err = w.subscribe(ctx) // the first refusal
	} else {
		known := w.know(refused, turn)
		err = w.carryOut(ctx, known.decide())
	}
	w.queueUp()
	return err
}

// outbid is called when only the ballot was too low: the next attempt follows in the same turn, with a higher one, and asks
// all nodes at once, so that it comes to none of them later than it must (F1). The first time it follows at once. Readers that
// get in together may outbid each other again and again: then random pauses separate them.
func (w *waiter) outbid(ctx context.Context) error {
	c := w.client
	w.stales++
	w.how.all, w.how.probe = true, nil
	pause := time.Duration(0)
	if w.stales > 1 {
		pause = c.protocol.random(c.roundTrip() << min(w.stales-2, 3))
	}
	return c.rest(ctx, pause)
}

// subscribe has the nodes send messages to this client, which they do only once it has subscribed. The next attempt
// follows at once and enters a queue. So subscribe waits until the node that is asked first has confirmed the
// subscription or is known not to, no longer than NodeTimeout. A release of this process comes first: it may have told
// nobody else (W1).
func (w *waiter) subscribe(ctx context.Context) error {
	w.how.probe = nil
	if !w.cutOff {
		w.how.probe = w.client.probeFor(w.res)
	}
	w.listen()
	timer := w.client.timers.start(w.client.cfg.NodeTimeout)
	defer w.client.timers.stop(timer)
	n := w.how.probe
	for n != nil && !w.canQueueAt(n) {
		if timeUp, err := w.awaitHint(ctx, timer.Timer); timeUp || err != nil {
			return err
		}
		h := w.client.waiters.drain(w.inbox)
		if w.takeTurn(h) {
			return nil
		}
		w.pauseAfter(h, 0) // notes until when it polls
	}
	return nil
}

// know gathers what is known after a refused round, which followed these hints of a turn.
func (w *waiter) know(r refusedRound, turn hints) known {
	c := w.client
	o := obstacleOf(r.answers, r.votes.need, r.asked != nil)
	return known{
		settings:     c.settings,
		refusedRound: r,
		memory:       w.memory,
		obstacle:     o,
		handedOver:   turn.localRelease && len(w.res.keys) > 1,
		hadTurn:      turn.reserved != 0,
		tooFew:       w.res.share.tooFew(r.answers, turn.reserved),
		balked:       r.asked != nil && r.asked.balks.Load() != 0,

		now:         c.cfg.Clock.Now(),
		first:       c.probeFor(w.res),
		queueNode:   w.queueNode(o.unqueued(r.entered)),
		roundTrip:   c.roundTrip(),
		reservation: c.reservation(),
		lostPoll:    c.lostPoll(),
		deafPoll:    c.deafPoll(),
	}
}

// carryOut does what was decided, up to the time of the next attempt.
func (w *waiter) carryOut(ctx context.Context, n next) error {
	w.memory, w.how.probe, w.stays = n.memory, n.probe, n.stays
	if n.leaves != 0 {
		w.client.waiters.leave(w.res, n.leaves, n.passesOn, w.inbox)
	}
	if n.pause == 0 {
		return nil
	}
	if err := w.client.rest(ctx, n.holdOff); err != nil {
		return err
	}
	return w.sleep(ctx, n)
}

// sleep waits until the pause is over, or until hints make the next attempt worthwhile sooner.
func (w *waiter) sleep(ctx context.Context, n next) error {
	c := w.client
	pause, end := n.pause, c.cfg.Clock.Now().Add(n.pause)
	timer := c.timers.start(pause)
	defer c.timers.stop(timer)
	for {
		h := c.waiters.drain(w.inbox)
		if w.takeTurn(h) || w.queueNode(n.unqueued) != nil {
			return nil
		}
		if sooner, now := w.pauseAfter(h, n.queued), c.cfg.Clock.Now(); sooner < end.Sub(now) {
			pause, end = sooner, now.Add(sooner)
			timer.Reset(sooner)
		}
		timeUp, err := w.awaitHint(ctx, timer.Timer)
		switch {
		case err != nil:
			return err
		case timeUp:
			if pause >= n.silence { // the node asked first may know nothing, or know what others do not: ask all
				w.how.probe = nil
			}
			return nil
		}
	}
}

// takeTurn reports whether the hints say that it is this client's turn. Then it has the next attempt ask all nodes at
// once, unless another node is to be asked first.
func (w *waiter) takeTurn(h hints) bool {
	if h.reserved == 0 && !h.localRelease {
		return false
	}
	w.turn, w.how.probe = h, nil
	// A holder that knows of more permits may have had a slot that this semaphore does not have (S6). It is no use here; but
	// somebody left, so this attempt asks for another one.
	if h.permit != 0 && w.res.share.isSemaphore() && w.res.share.take == 1 && h.permit <= w.res.share.permits {
		w.how.slots = []int{h.permit - 1}
	}
	if h.localRelease { // this went ahead on the same connections, and sent no other waiter a message
		w.unannounced = w.client.allNodes()
	}
	if h.reserved != 0 {
		// The node that is asked first may have reserved the key for another client: two queues become one. But not if it alone
		// has been asked for long: each turn would be passed on while something stays there.
		n, c := w.client.probeFor(w.res), w.client
		lately := c.cfg.Clock.Now().Sub(w.askedAll) < c.lostPoll()
		if n != nil && (!h.reserved.has(n.index) && lately || c.isTight()) {
			w.how.probe = n
		}
	}
	return true
}

// pauseAfter returns how long the waiter may still sleep after these hints, and notes until when it polls. queued is
// where it may be in a queue.
func (w *waiter) pauseAfter(h hints, queued nodeSet) time.Duration {
	c := w.client
	pause := never
	if h.poll {
		// The key is reserved for a client that polls. If it has died, no message follows: poll until it should have
		// used its turn.
		w.pollUntil = c.cfg.Clock.Now().Add(2*c.reservation() + 2*c.deafPoll() + c.roundTrip())
		pause = c.jitter(c.deafPoll())
	}
	if h.resubscribed&queued != 0 {
		pause = min(pause, c.jitter(c.lostPoll()/10)) // messages may have been lost while there was no subscription
	}
	return pause
}

func (w *waiter) awaitHint(ctx context.Context, timer *time.Timer) (timeUp bool, err error) {
	return w.client.awaitHint(ctx, w.inbox, timer)
}

// awaitHint waits until something has changed in the inbox. It returns sooner if the timer fires (timeUp), or with an
// error if ctx or the client ends.
func (c *Client) awaitHint(ctx context.Context, box *inbox, timer *time.Timer) (timeUp bool, err error) {
	select {
	case <-box.signal:
		return false, nil
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-c.ending:
		return false, ErrClosed
	}
}
