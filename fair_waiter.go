package redlock

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A fairWaiter is one wait for a fair lock (O1 to O3). Its first attempt asks without a ticket. If that is refused, the
// answers say which tickets there are. It then has the next larger one, and with each further attempt it enters the
// queues on all nodes, or renews its place there.
type fairWaiter struct {
	client   *Client
	res      *resource
	place    place
	begun    int64  // when the call began, µs of the servers' clocks; 0: it is not known
	inbox    *inbox // gets hints of releases; nil: it has no ticket
	expected bool   // the attempt that is being made should win
	cutOff   bool   // fewer nodes than a quorum answered when they were last asked
	wasted   int    // rounds that were won too late to be of use, one after another
	attempts int
	lead     time.Duration // as in approach
	fairMemory
}

const (
	// fairRefresh is how often a waiter of a fair lock asks again, at the least.
	fairRefresh = time.Second
	// minRefresh bounds that from below, for a small MaxTTL.
	minRefresh = 50 * time.Millisecond
	// maxPlaceLife bounds how long a place lasts. fair.lua takes a place that lasts longer than a minute for one that
	// was made before the clock was set back.
	maxPlaceLife = 30 * time.Second
	// maxWasted is how many rounds in a row a waiter may win too late to be of use before it loses its turn.
	maxWasted = 3
)

// fairRefresh is how often a waiter asks again at the least, so that its place lasts. It does so twice within MaxTTL,
// so that a node which has forgotten its queue knows it again when it leaves its quarantine (O2). With many waiters in
// this client each asks less often.
func (c *Client) fairRefresh() time.Duration {
	waiters := time.Duration(c.waiters.listening.Load())
	refresh := fairRefresh * max(manyWaiters, min(waiters, 5*manyWaiters)) / manyWaiters
	return max(min(refresh, c.cfg.MaxTTL/2), minRefresh)
}

// placeLife is how long a place lasts: until the waiter has asked again twice, and both attempts took their time.
func (c *Client) placeLife() time.Duration {
	return min(2*c.fairRefresh()+3*c.cfg.NodeTimeout, maxPlaceLife)
}

// newPlace makes a place without a ticket.
func newPlace(c *Client, res *resource) *place {
	return &place{waiter: c.waiters.newWaiter(), life: millis(c.placeLife()), keys: fairKeys(res)}
}

func newFairWaiter(s *spec, begun Instant) *fairWaiter {
	c := s.client
	w := &fairWaiter{client: c, res: s.res, place: *newPlace(c, s.res)}
	w.begun = c.serverMicros(begun)
	return w
}

// serverMicros is the median of the nodes' clocks at that moment, in µs, as last observed; 0: it is not known.
func (c *Client) serverMicros(at Instant) int64 {
	median, clocks := c.medianClock()
	if clocks == 0 {
		return 0
	}
	return max(0, int64(at)/1e3+median)
}

// how is how to make the next attempt. While fewer nodes than a quorum answer, it does not renew the place: this waiter
// could not use its turn, and would keep those from theirs that reach other nodes.
func (w *fairWaiter) how() approach {
	a := approach{all: true, reservation: w.place.waiter, fair: &w.place, lead: w.lead}
	if w.place.ticket != 0 && !w.cutOff {
		w.place.life = millis(w.client.placeLife())
		a.queueAt, a.queueEntry = w.client.allNodes(), w.place.ticket
	}
	return a
}

// wait is called after a refused round. It returns when the next attempt is worthwhile, or with an error when ctx or
// the client has ended.
func (w *fairWaiter) wait(ctx context.Context, r *round) error {
	c := w.client
	answers, votes := r.snapshot()
	w.lead = c.leadAfter(w.lead, r)
	if r.onlyStale() {
		return nil // only the ballot was too low: ask again at once, with a higher one
	}
	wasCutOff := w.cutOff
	w.cutOff = w.reached(answers) < c.need
	switch {
	case r.isWasted():
		if w.wasted++; w.wasted == maxWasted {
			w.loseTurn()
		}
	case w.place.ticket == 0 && votes.answered():
		w.wasted = 0
		w.arrive(answers)
		return nil // the next attempt enters the queues
	case wasCutOff && !w.cutOff && w.place.ticket != 0:
		return nil // likewise
	default:
		w.wasted = 0
	}
	known := fairKnown{
		settings:   c.settings,
		fairMemory: w.fairMemory,
		answers:    answers,
		votes:      votes,
		expected:   w.expected,
		hears:      c.waiters.subscribedTo(c.allNodes()).len() >= c.need,
		passed:     c.cfg.Clock.Now().Sub(r.t0),
		roundTrip:  c.roundTrip(),
		refresh:    c.fairRefresh(),
		deafPoll:   c.deafPoll(),
	}
	n := known.decide()
	w.fairMemory, w.expected = n.fairMemory, false
	if w.inbox == nil { // an outage, without a ticket
		return w.client.rest(ctx, n.pause)
	}
	return w.sleep(ctx, n)
}

// arrive draws a ticket: larger than all that a quorum of nodes has, and no smaller than the time at which the call
// began (O2).
func (w *fairWaiter) arrive(answers []answer) {
	c := w.client
	largest := int64(0)
	if !c.protocol.omits(ticketsCompared) {
		largest = c.largestTicket(answers)
	}
	if w.begun == 0 {
		w.begun = c.serverMicros(c.cfg.Clock.Now())
	}
	w.place.ticket = max(largest+1, w.begun)
	if w.inbox == nil {
		w.inbox = c.waiters.listenAt(&w.place, w.res)
	}
}

// largestTicket is the largest ticket that these nodes have. As with ballots (F2), one that is far ahead of the servers' clocks
// counts only if a quorum has as much: a waiter writes its own on all nodes, and beyond 2^53 no server can tell two apart.
func (c *Client) largestTicket(answers []answer) (largest int64) {
	const most = maxMicros - 2 // one more is the next ticket, still below 2^53
	limit := min(c.ballotLimit(), most)
	var far []uint64
	for _, a := range answers {
		switch {
		case a.denial == nil:
		case a.denial.ticket > int64(limit):
			far = append(far, uint64(a.denial.ticket))
		default:
			largest = max(largest, a.denial.ticket)
		}
	}
	if agreedOn, ok := c.quorumHas(far); ok {
		largest = int64(min(agreedOn, most))
	}
	return largest
}

// reached is how many nodes have answered, whether they may grant or not.
func (w *fairWaiter) reached(answers []answer) (count int) {
	for _, a := range answers {
		if a.micros != 0 {
			count++
		}
	}
	return count
}

// loseTurn leaves the queues. The waiter then arrives anew: it was granted the lock several times and could not use it,
// so others have their turn.
func (w *fairWaiter) loseTurn() {
	w.leave()
	w.place.ticket, w.begun, w.wasted = 0, 0, 0
}

// sleep waits until the pause is over, or until messages say that the lock may be free on enough nodes. One message
// alone makes the pause short: the others may be lost.
func (w *fairWaiter) sleep(ctx context.Context, n fairNext) error {
	c := w.client
	if err := w.client.rest(ctx, n.holdOff); err != nil {
		return err
	}
	end := c.cfg.Clock.Now().Add(n.pause - n.holdOff)
	timer := c.timers.start(n.pause - n.holdOff)
	defer c.timers.stop(timer)
	free := n.free
	for {
		h := c.waiters.drain(w.inbox)
		sooner := never
		if told := h.reserved &^ free; told != 0 {
			free |= told
			if told&^n.late != 0 {
				sooner = 2 * c.roundTrip()
			}
			if free.len() >= c.need {
				w.expected = true
				return nil
			}
		}
		if h.resubscribed != 0 {
			sooner = min(sooner, c.jitter(c.lostPoll()/10)) // messages may have been lost meanwhile
		}
		if now := c.cfg.Clock.Now(); sooner < end.Sub(now) {
			end = now.Add(sooner)
			timer.Reset(sooner)
		}
		if timeUp, err := c.awaitHint(ctx, w.inbox, timer.Timer); timeUp || err != nil {
			return err
		}
	}
}

// end leaves the queues when Acquire returns, whether it has the lock or not: a grant takes nobody out of a queue.
// Nothing is owed to a node that cannot be reached: the place there ends by itself, or when it is told (placeTold).
func (w *fairWaiter) end() {
	if w.inbox == nil {
		return
	}
	w.client.waiters.removePlace(w.place.waiter)
	w.leave()
}

func (w *fairWaiter) leave() { w.client.leavePlace(w.res.keys, w.place.waiter, w.client.allNodes()) }

func (c *Client) leavePlace(keys []any, waiter string, nodes nodeSet) {
	if c.protocol.omits(placesLeft) {
		return
	}
	leave := c.protocol.leavePlaceCall(keys, waiter, millis(c.reservation()))
	c.send(c.newRound(plan{call: leave}), nodes, 0)
}

// newWaiter names a waiter of a fair lock. Names of one client are in the order in which they were made.
func (w *waiters) newWaiter() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return fmt.Sprintf("%s%s:%016x", fairPrefix, w.me[len(reservationPrefix):], w.made)
}

// listenAt makes an inbox for the waiter of a fair lock, and starts the subscribers. The inbox gets hints until
// removePlace.
func (w *waiters) listenAt(at *place, res *resource) *inbox {
	box := &inbox{signal: make(chan struct{}, 1)}
	w.listening.Add(1)
	w.mu.Lock()
	w.places[at.waiter] = box
	for _, key := range res.keys { // a holder in this process needs no message
		w.seeAll(key)
	}
	w.mu.Unlock()
	for _, s := range w.subscribers {
		s.want()
	}
	return box
}

func (w *waiters) removePlace(waiter string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.places, waiter)
	if w.listening.Add(-1) == 0 {
		w.quietSince = w.client.cfg.Clock.Now()
	}
}

// place reads the message "fair:<id>:<number> <key>", which names a waiter of this client for a fair lock; see
// release.lua. No lock key looks like that by chance.
func (w *waiters) place(message string) (waiter, key string, ok bool) {
	waiter, key, ok = strings.Cut(message, " ")
	return waiter, key, ok && strings.HasPrefix(waiter, fairPrefix+w.me[len(reservationPrefix):]+":")
}

// placeTold handles a message: on that node, this key has become free for this waiter. A waiter that has gone may still
// have a place there: the node was away when it left. As this client hears of each release in its stead, those behind it
// would not. So it leaves again. w.mu is held.
func (w *waiters) placeTold(waiter, key string, node int) {
	if box := w.places[waiter]; box != nil {
		box.hints.reserved.add(node)
		box.wakeUp()
		return
	}
	w.client.leavePlace([]any{key}, waiter, 1<<node)
}
