package redlock

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// An admission bounds how many attempts of one client are under way at the same moment, by how long they take. Without a
// bound, a crowd that comes at once (readers that have waited for one writer, the first locks of a busy program) makes its
// own requests wait so long, in front of the servers or in this process, that the rounds end without their answers. Then
// the servers' work is wasted, and asked for again. Renewals and releases are not bounded. They would be behind the crowd
// too.
//
// The bound follows the delay, as that of TCP Vegas does (Brakmo and Peterson, 1995). What the shortest round has left of
// NodeTimeout may be spent on waiting. While rounds spend less than a quarter of that, the bound grows, and doubles in each
// round trip. If they spend more than half, the bound is halved. Who is not admitted waits in order of arrival.
type admission struct {
	mu       sync.Mutex // guards the rest
	first    int        // the limit while nothing is known
	limit    int        // how many attempts may be under way
	underWay int
	waiting  list.List     // who is not admitted; an element is a channel, closed when it is
	least    time.Duration // how long the shortest round took; 0: not known
	usual    time.Duration // how long those take now; 0: none was since the limit was halved
	left     Instant       // when the last of them was over
	halved   Instant       // when the limit was last halved: rounds that began before say nothing of it
	reached  Instant       // when as many were last under way as the limit allows
}

const (
	firstLimit = 64
	leastLimit = 16
	leastTime  = 10 * time.Second // how long the shortest round is remembered
	limitTime  = time.Second      // how long a limit above the first one is, if it is not reached
)

func (a *admission) init(first int) {
	a.first, a.limit, a.left, a.halved, a.reached = first, first, longAgo, longAgo, longAgo
}

// enter waits until the caller's attempt may be under way. Unless it fails, leave or quit must follow.
func (a *admission) enter(ctx context.Context, now Instant, ending <-chan struct{}) (err error) {
	a.mu.Lock()
	if a.limit > a.first && now.Sub(a.reached) > limitTime { // what so many found may no longer be so (RFC 7661)
		a.limit = max(a.first, a.underWay+1)
	}
	if a.underWay+1 >= a.limit {
		a.reached = now
	}
	if a.underWay < a.limit {
		a.underWay++
		a.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	place := a.waiting.PushBack(admitted)
	a.mu.Unlock()

	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-ending:
		err = ErrClosed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-admitted: // at the same moment: pass it on
		a.underWay--
		a.admit()
	default:
		a.waiting.Remove(place)
	}
	return err
}

// quit ends an attempt that was admitted, and that no node has answered.
func (a *admission) quit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.underWay--
	a.admit()
}

// leave ends an attempt that was admitted and took so long, in so many round trips.
func (a *admission) leave(began, ended Instant, trips int, nodeTimeout time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.underWay--
	defer a.admit()
	took := min(ended.Sub(began), 4*nodeTimeout) / time.Duration(trips)
	if a.least == 0 || took < a.least {
		a.least = took
	}
	// The nodes may be further away than they were, so the shortest round is forgotten little by little.
	since := min(max(ended.Sub(a.left), 0), leastTime)
	a.least += time.Duration(float64(took-a.least) * since.Seconds() / leastTime.Seconds())
	a.left = ended
	if a.waiting.Len() > 0 {
		a.reached = ended
	}
	if began < a.halved {
		return
	}
	if a.usual == 0 {
		a.usual = took
	}
	a.usual += (took - a.usual) / 8 // as in node_delay.go: a single one may be late for its own reasons
	switch spare := nodeTimeout - a.least; {
	case a.usual > a.least+spare/2:
		a.limit, a.usual, a.halved = max(a.limit/2, min(leastLimit, a.first)), 0, ended
	case a.usual < a.least+spare/4 && a.waiting.Len() > 0:
		a.limit++
	}
}

// admit admits those that are not admitted so far, in order, while the limit allows it. a.mu is held.
func (a *admission) admit() {
	for a.underWay < a.limit && a.waiting.Len() > 0 {
		a.underWay++
		close(a.waiting.Remove(a.waiting.Front()).(chan struct{}))
	}
}

// errCrowded is why no node was asked.
var errCrowded = errors.New("not asked, since as many acquires of this client were under way as its nodes answer in time")

// enterAdmission waits until the attempt may begin. If it fails, the round says why no node was asked.
func (c *Client) enterAdmission(ctx context.Context) (*round, error) {
	if err := c.admission.enter(ctx, c.cfg.Clock.Now(), c.ending); err != nil {
		return c.unasked(c.protocol.acquire, c.cfg.Clock.Now(), func(*node) error { return errCrowded }), err
	}
	return nil, nil
}

// leaveAdmission is called when a round is over (plan.over). Until then its attempt is under way, also if its caller has gone:
// what it asked still waits in front of the servers.
func (c *Client) leaveAdmission(r *round, trips int) {
	if trips == 0 {
		c.admission.quit()
		return
	}
	c.admission.leave(r.t0, c.cfg.Clock.Now(), trips, c.cfg.NodeTimeout)
}
