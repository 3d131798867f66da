package main

import (
	"context"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/sleep"
)

const (
	demoPoll     = 20 * time.Millisecond
	demoRestarts = 3 // at most
)

// script does what goes wrong in the demo. Each step begins at its part of the whole time, or after the step before.
//
// The node that comes back is empty: it has forgotten a vote that a lease may rest on. Its quarantine prevents a second
// vote until that lease is over.
func (s *stage) script(ctx context.Context, client *redlock.Client) error {
	const a, b = 0, 1 // the nodes that die
	for _, step := range []struct {
		at float64
		do func() error
	}{
		{0.10, func() error { return s.pauseHolder(ctx, client) }},
		{0.30, func() error { return s.kill(a) }},
		{0.45, func() error { return s.kill(b) }},
		{0.60, func() error { return s.forget(ctx, client, a) }},
	} {
		if err := sleep.For(ctx, time.Until(s.began.Add(time.Duration(step.at*float64(s.length))))); err != nil {
			return err
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	return nil
}

// pauseHolder acts as a process that stops between its last look at the lease and its write. Nobody renews its lease,
// so another client gets the lock. Then the process continues with its write.
func (s *stage) pauseHolder(ctx context.Context, client *redlock.Client) error {
	lease, err := client.Mutex(demoKey).WithoutRenewal().Acquire(ctx)
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx)) // it is lost by then
	seen, _ := s.counter.read()
	if t, valid := s.begin(0, lease); valid { // the last look
		s.record(t)
	}
	s.event("client 1 pauses while it holds the lock, fencing token %d", lease.Fence())

	newer := uint64(0)
	for newer <= lease.Fence() {
		if err := sleep.For(ctx, demoPoll); err != nil {
			return err
		}
		_, newer = s.counter.read()
	}
	s.event("its lease is over; the next holder has fencing token %d", newer)

	now, _ := s.counter.read()
	accepted := s.counter.write(lease.Fence(), seen+1)
	s.mu.Lock()
	s.stale = &staleWrite{token: lease.Fence(), newer: newer, accepted: accepted}
	s.mu.Unlock()
	outcome := "refused, its token is too old"
	if accepted {
		outcome = "accepted, which is wrong"
	}
	s.event("client 1 wakes up and writes %d over %d: %s", seen+1, now, outcome)
	return nil
}

func (s *stage) kill(node int) error {
	if err := s.nodes[node].Kill(); err != nil {
		return err
	}
	s.setState(node, nodeState{word: down})
	name := s.note(node, "killed")
	s.event("%s killed: %d of %d nodes are left, %d are a quorum", name, s.voting(), len(s.nodes), len(s.nodes)/2+1)
	return nil
}

// forget restarts the node empty, until its quarantine was seen: on a busy machine it may be over before anyone looks.
func (s *stage) forget(ctx context.Context, client *redlock.Client, node int) error {
	for try := 1; ; try++ {
		began := time.Now() // of a time in which it cannot have voted
		if err := s.restart(ctx, node); err != nil {
			return err
		}
		q, err := s.awaitVote(ctx, client, node, began)
		if err != nil {
			return err
		}
		if q.seen || q.took < s.ttl || try == demoRestarts {
			s.mu.Lock()
			s.quarantine = &q
			s.mu.Unlock()
			return nil
		}
		s.event("nobody looked while it was in quarantine; once more")
		if err := s.kill(node); err != nil {
			return err
		}
	}
}

func (s *stage) restart(ctx context.Context, node int) error {
	if err := s.nodes[node].Start(ctx, fleet.Empty); err != nil {
		return err
	}
	s.setState(node, nodeState{word: connecting})
	name := s.note(node, "restarted empty")
	s.event("%s restarted empty: it may have forgotten that it granted a lease", name)
	return nil
}

// awaitVote shows the quarantine of a node, and returns when the node votes again.
func (s *stage) awaitVote(ctx context.Context, client *redlock.Client, node int, began time.Time) (quarantine, error) {
	q := quarantine{node: s.nodes[node].Name()}
	for {
		status := client.Status(ctx)[node]
		switch {
		case status.Quarantine > 0:
			if !q.seen {
				q.seen = true
				s.event("%s is in quarantine: it does not vote for %.1fs", q.node, status.Quarantine.Seconds())
			}
			s.setState(node, nodeState{word: quarantined, until: time.Now().Add(status.Quarantine)})
		case status.Err == nil:
			q.took = time.Since(began)
			s.setState(node, nodeState{word: up})
			s.event("%s votes again, %.1fs after its restart", q.node, q.took.Seconds())
			return q, nil
		}
		if err := sleep.For(ctx, demoPoll); err != nil {
			return q, err
		}
	}
}
