package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A stage is the counter, the nodes, and a record of what happened.
type stage struct {
	nodes   []*fleet.Node
	began   time.Time
	length  time.Duration
	ttl     time.Duration
	event   func(format string, args ...any) // shows one line about what happens
	counter guardedCounter

	mu         sync.Mutex // guards the rest; nothing is called under it
	states     []nodeState
	tenures    []tenure // in no order
	lost       int      // leases that ended before the counter was written
	faults     []fault
	stale      *staleWrite // nil: not tried
	quarantine *quarantine // nil: not over, or there was none
}

func newStage(nodes []*fleet.Node, length time.Duration) *stage {
	// A lease is an eighth of --seconds, within bounds: the script waits for one lease and one quarantine.
	s := &stage{nodes: nodes, length: length, ttl: min(max(length/8, demoMinTTL), demoMaxTTL), began: time.Now()}
	for range nodes {
		s.states = append(s.states, nodeState{word: up})
	}
	return s
}

// A guardedCounter is the resource that the lock protects. It refuses a write whose fencing token is smaller than the
// largest one that it has seen. Reads and writes are separate calls, so updates are lost unless the lock works.
type guardedCounter struct {
	mu    sync.Mutex // guards the rest
	value int64
	token uint64 // the largest one seen
}

func (c *guardedCounter) read() (value int64, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.token
}

func (c *guardedCounter) write(token uint64, value int64) (accepted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token < c.token {
		return false
	}
	c.token, c.value = token, value
	return true
}

// A nodeState is what the audience sees of a node.
type nodeState struct {
	word  string
	until time.Time // of a quarantine
}

const (
	up          = "up"
	down        = "down"
	connecting  = "connecting"
	quarantined = "quarantine"
)

// A tenure is a time in which a contender believed that it held the lock.
type tenure struct {
	client     int
	fence      uint64
	from, till time.Duration // since stage.began: when the lease was first and last seen valid
	raised     bool          // the counter
}

// begin is a tenure that begins now, if the lease is still valid. The time is read before each look at the lease. If this
// process stands still in between, another contender may get the lock, and that is no overlap.
func (s *stage) begin(client int, lease *redlock.Lease) (t tenure, valid bool) {
	now := time.Since(s.began)
	return tenure{client: client, fence: lease.Fence(), from: now, till: now}, lease.Valid()
}

// goesOn reports whether the lease is still valid.
func (s *stage) goesOn(t *tenure, lease *redlock.Lease) bool {
	now := time.Since(s.began)
	if !lease.Valid() {
		return false
	}
	t.till = now
	return true
}

type fault struct {
	Node         string  `json:"node"`
	What         string  `json:"what"`
	AfterSeconds float64 `json:"after_seconds"`
	at           time.Duration
}

// A staleWrite is what became of the write of the holder that paused.
type staleWrite struct {
	token, newer uint64
	accepted     bool
}

// A quarantine is how the node that forgot came back.
type quarantine struct {
	node string
	seen bool          // the node was in quarantine before it voted
	took time.Duration // from its restart to its vote
}

// contend increments the counter until ctx ends.
func (s *stage) contend(ctx context.Context, lock redlock.Lock, client int) {
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			return // ctx ended
		}
		t, valid := s.begin(client, lease)
		if valid {
			seen, _ := s.counter.read()
			time.Sleep(time.Millisecond) // so that another write could come in between
			if valid = s.goesOn(&t, lease); valid {
				t.raised = s.counter.write(t.fence, seen+1)
			}
			s.record(t)
		}
		if !valid {
			s.mu.Lock()
			s.lost++
			s.mu.Unlock()
		}
		_ = lease.Release(context.WithoutCancel(ctx)) // without a quorum it expires by itself
	}
}

func (s *stage) record(t tenure) {
	s.mu.Lock()
	s.tenures = append(s.tenures, t)
	s.mu.Unlock()
}

// note records a fault and returns the name of its node.
func (s *stage) note(node int, what string) string {
	at, name := time.Since(s.began), s.nodes[node].Name()
	s.mu.Lock()
	s.faults = append(s.faults, fault{Node: name, What: what, AfterSeconds: at.Seconds(), at: at})
	s.mu.Unlock()
	return name
}

func (s *stage) setState(node int, state nodeState) {
	s.mu.Lock()
	s.states[node] = state
	s.mu.Unlock()
}

// voting returns how many nodes vote.
func (s *stage) voting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		if state.word == up {
			n++
		}
	}
	return n
}

// A check is one thing that must be true.
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
	StaleRefused int     `json:"stale_writes_refused"`
	Quarantine   float64 `json:"quarantine_seconds"` // from the restart to the first vote
	Faults       []fault `json:"faults"`
	Checks       []check `json:"checks"`
}

// judge checks what happened. All contenders have ended.
func (s *stage) judge(interrupted bool) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.tenures, func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
	v := verdict{Interrupted: interrupted, Seconds: time.Since(s.began).Seconds(), LostLeases: s.lost, Faults: s.faults}
	v.Counter, _ = s.counter.read()
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
	v.Checks = s.checks(&v)
	v.OK = !slices.ContainsFunc(v.Checks, func(c check) bool { return !c.OK })
	return v
}

// failed says which checks failed.
func (v *verdict) failed() string {
	var failed []string
	for _, c := range v.Checks {
		if !c.OK {
			failed = append(failed, c.Name+": "+c.Detail)
		}
	}
	return strings.Join(failed, "; ")
}

// checks leaves out what an interrupted demo had not come to. mu is held.
func (s *stage) checks(v *verdict) (all []check) {
	add := func(ok bool, name, format string, args ...any) {
		all = append(all, check{name, ok, fmt.Sprintf(format, args...)})
	}
	addOnce := func(count int, name, format string, args ...any) {
		if count > 0 || !v.Interrupted {
			add(count > 0, name, format, args...)
		}
	}
	addOnce(v.Acquisitions, "acquisitions", "%d, by %d contenders in %d clients", v.Acquisitions, demoClients*demoGoroutines, demoClients)
	addOnce(v.HandOvers, "hand-overs between clients", "%d", v.HandOvers)
	add(v.Overlaps == 0, "overlapping leases", "%d", v.Overlaps)
	add(v.LostUpdates == 0, "lost updates", "%d, the counter is %d after %d increments", v.LostUpdates, v.Counter, v.Acquisitions)
	add(v.FencesBack == 0, "fencing tokens out of order", "%d of %d", v.FencesBack, len(s.tenures))
	switch w := s.stale; {
	case w == nil && v.Interrupted:
	case w == nil:
		add(false, "stale write", "not tried")
	case w.accepted:
		add(false, "stale write", "accepted with token %d after token %d", w.token, w.newer)
	default:
		v.StaleRefused++
		add(true, "stale write", "refused, token %d came after %d", w.token, w.newer)
	}
	afterKills := 0
	if kills := s.killed(); kills > 0 {
		afterKills = s.acquiredAfter(kills)
	}
	addOnce(afterKills, "acquisitions after both kills", "%d", afterKills)
	switch q := s.quarantine; {
	case q == nil && v.Interrupted:
	case q == nil:
		add(false, "quarantine", "the node that restarted empty did not vote again")
	case !q.seen:
		add(false, "quarantine", "%s was in none, and voted %.1fs after its restart", q.node, q.took.Seconds())
	default:
		v.Quarantine = q.took.Seconds()
		add(true, "quarantine", "%s restarted empty, and did not vote for %.1fs", q.node, q.took.Seconds())
	}
	return all
}

// killed returns when the second node was killed; 0 if it was not. mu is held.
func (s *stage) killed() time.Duration {
	if len(s.faults) < 2 {
		return 0
	}
	return s.faults[1].at
}

// acquiredAfter counts acquisitions. mu is held.
func (s *stage) acquiredAfter(at time.Duration) (n int) {
	for _, t := range s.tenures {
		if t.from >= at {
			n++
		}
	}
	return n
}
