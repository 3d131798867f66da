package redlock

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// A scheduler calls tick of each of the client's ownerships when something is due: a renewal, a retry, or the end (R1,
// R3). It is one goroutine with one timer, for any number of leases.
type scheduler struct {
	clock Clock
	wake  chan struct{} // capacity 1: another ownership is the first one due
	ended chan struct{}

	forgetsTicked bool // ticksDrained is off

	mu      sync.Mutex // guards the rest, and due and place of each ownership; no callback under it
	queue   dueQueue
	ticked  *ownership // the one whose tick may be running; run has taken it out of the queue
	drained bool       // nothing enters the queue any more
}

func newScheduler(clock Clock) *scheduler {
	return &scheduler{clock: clock, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// set makes due the next tick of the ownership, instead of any instant that was set before. It reports false if nothing
// enters the queue any more.
func (s *scheduler) set(o *ownership, due Instant) bool { return s.put(o, due, false) }

// setAgain is set, called from a tick. If an earlier instant was set during the tick, that one stays: one tick too many
// does no harm.
func (s *scheduler) setAgain(o *ownership, due Instant) { s.put(o, due, true) }

func (s *scheduler) put(o *ownership, due Instant, keepEarlier bool) bool {
	s.mu.Lock()
	switch {
	case s.drained: // L2: who begins a lease now also has to end it
		s.mu.Unlock()
		return false
	case o.place < 0:
		o.due = due
		heap.Push(&s.queue, o)
	case !keepEarlier || due < o.due:
		o.due = due
		heap.Fix(&s.queue, o.place)
	}
	first := o.place == 0
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// drop takes the ownership out of the queue.
func (s *scheduler) drop(o *ownership) {
	s.mu.Lock()
	if o.place >= 0 {
		heap.Remove(&s.queue, o.place)
	}
	s.mu.Unlock()
}

// overdue is how long ago the tick of the ownership was due, that which runs or the next one: if that is long, nothing ran
// in this process meanwhile.
func (s *scheduler) overdue(o *ownership) time.Duration {
	s.mu.Lock()
	due := o.due
	s.mu.Unlock()
	return s.clock.Now().Sub(due)
}

// all is the ownerships that are in the queue, or whose tick is running.
func (s *scheduler) all() []*ownership {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone([]*ownership(s.queue))
	if s.ticked != nil && s.ticked.place < 0 {
		all = append(all, s.ticked)
	}
	return all
}

// drain takes out and returns all ownerships, also the one whose tick is running (L2). Nothing enters the queue after
// it. An ownership that it returns may have ended.
func (s *scheduler) drain() []*ownership {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*ownership(s.queue)
	if !s.forgetsTicked {
		if s.ticked != nil && s.ticked.place < 0 {
			all = append(all, s.ticked)
		}
		s.ticked, s.drained = nil, true
	}
	s.queue = nil
	for _, o := range all {
		o.place = -1
	}
	return all
}

// run calls ticks until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := s.clock.Now()
		o, wait := s.next(now)
		if o != nil {
			o.tick(now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next takes an ownership that is due out of the queue, or returns how long to wait for the next one.
func (s *scheduler) next(now Instant) (*ownership, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticked = nil
	if len(s.queue) == 0 {
		return nil, time.Hour
	}
	if wait := s.queue[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	s.ticked = heap.Pop(&s.queue).(*ownership)
	return s.ticked, 0
}

// A dueQueue is a heap, ordered by due; see container/heap.
type dueQueue []*ownership

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *dueQueue) Push(x any) {
	o := x.(*ownership)
	o.place = len(*q)
	*q = append(*q, o)
}

func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	o := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	o.place = -1
	return o
}
