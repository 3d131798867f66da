package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A stage is the counter, those who raise it, and a record of what they believed.
type stage struct {
	nodes  []*fleet.Node
	began  time.Time
	length time.Duration
	event  func(text string) // told what is done to the nodes

	// counter is atomic only so that the race detector bears with it. It is raised by a load and a later
	// store, which lose updates unless the lock holds.
	counter atomic.Int64

	mu      sync.Mutex // guards the rest; nothing is called under it
	tenures []tenure   // in no order
	lost    int        // leases that ended before the counter was written
	faults  []fault
}

// A tenure is a time in which a contender believed that the lock was its own.
type tenure struct {
	client     int
	fence      uint64
	from, till time.Duration // since stage.began
	raised     bool
}

type fault struct {
	Node         string  `json:"node"`
	What         string  `json:"what"`
	AfterSeconds float64 `json:"after_seconds"`
	at           time.Duration
}

// contend raises the counter until ctx ends.
func (s *stage) contend(ctx context.Context, lock redlock.Lock, client int) {
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			return // ctx ended
		}
		t := tenure{client: client, fence: lease.Fence(), from: time.Since(s.began)}
		seen := s.counter.Load()
		time.Sleep(time.Millisecond) // for another to come between, if one could
		t.till = time.Since(s.began)
		if t.raised = lease.Valid(); t.raised {
			s.counter.Store(seen + 1)
			t.till = time.Since(s.began)
		}
		s.mu.Lock()
		s.tenures = append(s.tenures, t)
		if !t.raised {
			s.lost++
		}
		s.mu.Unlock()
		_ = lease.Release(context.WithoutCancel(ctx)) // without a quorum it expires by itself
	}
}

func (s *stage) note(node, what string) {
	at := time.Since(s.began)
	s.mu.Lock()
	s.faults = append(s.faults, fault{Node: node, What: what, AfterSeconds: at.Seconds(), at: at})
	s.mu.Unlock()
	s.event(fmt.Sprintf("%s %s", node, what))
}

// A check is one thing that had to hold.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// A verdict is what --json prints.
type verdict struct {
	OK           bool    `json:"ok"`
	Interrupted  bool    `json:"interrupted"`
	Seconds      float64 `json:"seconds"`
	Acquisitions int     `json:"acquisitions"`
	HandOvers    int     `json:"hand_overs"`
	Overlaps     int     `json:"overlaps"`
	Counter      int64   `json:"counter"`
	LostUpdates  int64   `json:"lost_updates"`
	LostLeases   int     `json:"lost_leases"`
	FencesBack   int     `json:"fences_not_increasing"`
	Faults       []fault `json:"faults"`
	Checks       []check `json:"checks"`
}

// judge looks at what happened. No contender runs any more.
func (s *stage) judge(interrupted bool) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.tenures, func(a, b tenure) int { return int(a.from - b.from) })
	v := verdict{Interrupted: interrupted, Seconds: time.Since(s.began).Seconds(), Counter: s.counter.Load(), LostLeases: s.lost, Faults: s.faults}
	latest := tenure{client: -1}
	for i, t := range s.tenures {
		if t.raised {
			v.Acquisitions++
		}
		if i > 0 {
			if t.client != s.tenures[i-1].client {
				v.HandOvers++
			}
			if t.from < latest.till {
				v.Overlaps++
			}
			if t.fence <= s.tenures[i-1].fence {
				v.FencesBack++
			}
		}
		if t.till > latest.till {
			latest = t
		}
	}
	v.LostUpdates = int64(v.Acquisitions) - v.Counter
	add := func(ok bool, name, format string, args ...any) {
		v.Checks = append(v.Checks, check{name, ok, fmt.Sprintf(format, args...)})
	}
	add(v.Acquisitions > 0, "acquisitions", "%d, by %d contenders in %d clients", v.Acquisitions, demoClients*demoGoroutines, demoClients)
	add(v.HandOvers > 0, "hand-overs between clients", "%d", v.HandOvers)
	add(v.Overlaps == 0, "no overlap of believed validity", "%d", v.Overlaps)
	add(v.LostUpdates == 0, "no lost update", "%d acquisitions − counter %d = %d", v.Acquisitions, v.Counter, v.LostUpdates)
	add(v.FencesBack == 0, "fences strictly increasing", "%d of %d are not", v.FencesBack, len(s.tenures))
	if kills := s.killed(); kills > 0 || !interrupted {
		n := s.acquiredAfter(kills)
		add(n > 0 && kills > 0, "acquisitions after both kills", "%d", n)
	}
	v.OK = !slices.ContainsFunc(v.Checks, func(c check) bool { return !c.OK })
	return v
}

// killed is when the second node was killed; 0: not yet.
func (s *stage) killed() time.Duration {
	if len(s.faults) < 2 {
		return 0
	}
	return s.faults[1].at
}

func (s *stage) acquiredAfter(at time.Duration) (n int) {
	for _, t := range s.tenures {
		if t.from >= at {
			n++
		}
	}
	return n
}
