package redlock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// A scheduler wakes every hold of a client when it has something to do: renew, try again, or end. It is one
// goroutine with one timer, however many there are.
type scheduler struct {
	clock Clock
	wake  chan struct{} // capacity 1: the first in the queue has changed
	ended chan struct{}

	forgetsTicked bool // where ticksDrained is off

	mu      sync.Mutex // guards the rest, and the due and place of each hold in the queue; no call-back under it
	queue   dueQueue
	ticked  *ownership // the one that run took last, and may be ticking: it is in no queue meanwhile
	drained bool       // nothing is put any more
}

func newScheduler(clock Clock) *scheduler {
	return &scheduler{clock: clock, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// set wakes the hold at this instant instead of any set before.
func (s *scheduler) set(o *ownership, due Instant) { s.put(o, due, false) }

// setAgain is set after a tick, but an earlier instant set meanwhile stands: a tick too many does no harm.
func (s *scheduler) setAgain(o *ownership, due Instant) { s.put(o, due, true) }

func (s *scheduler) put(o *ownership, due Instant, keepEarlier bool) {
	s.mu.Lock()
	switch {
	case s.drained: // whoever begins a lease now sees that the client is closed, and ends it
		s.mu.Unlock()
		return
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
}

// drop forgets the hold.
func (s *scheduler) drop(o *ownership) {
	s.mu.Lock()
	if o.place >= 0 {
		heap.Remove(&s.queue, o.place)
	}
	s.mu.Unlock()
}

// drain forgets and returns all holds, also the one that is being ticked, and takes no other after it. A hold that
// is returned may have ended.
func (s *scheduler) drain() []*ownership {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := []*ownership(s.queue)
	if !s.forgetsTicked {
		if s.ticked != nil && s.ticked.place < 0 {
			holds = append(holds, s.ticked)
		}
		s.ticked, s.drained = nil, true
	}
	s.queue = nil
	for _, o := range holds {
		o.place = -1
	}
	return holds
}

// run wakes holds until ctx ends.
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

// next takes the hold that is due, or says how long none will be.
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

// A dueQueue is a heap by due; see container/heap.
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
