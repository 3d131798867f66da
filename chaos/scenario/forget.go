package scenario

import (
	"context"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// quorumless are the baselines that have two owners if a node forgets a lock.
var quorumless = []string{"setnx-expire", "getset", "get-del", "single", "watchdog", "plain-redlock"}

// forgetting are the scenarios in which a node loses a lock that it granted. A has the lock on one quorum, and B sees
// another quorum. The nodes in both quorums forget the lock.
func forgetting() []Scenario {
	split := "cut some nodes off from A and some from B, so that their quorums share as few nodes as possible"
	forget := func(name, short, how, proves string, needs Needs, before []fault.Verb, verbs ...fault.Verb) Scenario {
		return Scenario{
			Name: name, Short: short, Proves: proves, Faults: []string{split, how},
			Costs: "the vote of the node that forgot, for one quarantine",
			Fails: quorumless, Actors: 2, Needs: needs,
			Play: func(ctx context.Context, s *Stage) error { return s.forget(ctx, before, verbs...) },
		}
	}
	restartEmpty := forget("restart-empty", "a node restarts without its data",
		"kill a shared node and restart it without its data",
		"A node that comes back empty does not vote a second time while its first vote may be in use.",
		Needs{Nodes: 1}, nil, fault.RestartEmpty)
	restartEmpty.Kinds, restartEmpty.Fails = true, append([]string{"reader-counter", "majority-semaphore"}, quorumless...)
	return []Scenario{
		restartEmpty,
		forget("flush", "a node is flushed",
			"FLUSHALL on a shared node",
			"A node that was flushed does not vote a second time while its first vote may be in use.",
			Needs{Nodes: 1}, nil, fault.FlushAll),
		forget("replace", "another server at a node's address",
			"another server, which has run for a long time, takes over the address of a shared node",
			"Another server at the address of a node does not give the node's vote a second time.",
			Needs{Spares: true}, nil, fault.Replace),
		forget("old-rdb", "a node restarts with old data",
			"kill a shared node and restart it with an RDB file from before the lock",
			"A node that comes back with old data does not vote a second time.",
			Needs{Nodes: 1}, []fault.Verb{fault.Save}, fault.RestartOldRDB),
		forget("stale-replica", "a stale replica at a node's address",
			"a shared node dies before the lock has reached its replica, and the replica takes over the address",
			"A stale replica at the address of a node does not give the node's vote a second time.",
			Needs{Replica: true}, []fault.Verb{fault.Follow, fault.Lag}, fault.Promote),
		forget("failback", "a node takes over the data of its stale replica",
			"a shared node follows its own stale, detached replica, and becomes a master again: same process, same run id",
			"A node that has taken over the data of its own stale replica does not vote a second time.",
			Needs{Replica: true}, []fault.Verb{fault.Follow, fault.Detach}, fault.Failback),
		forget("durable-stale-replica", "stale-replica, with servers that persist every write",
			"the same as stale-replica, but every server persists each write before it answers, and the lock knows it",
			"A stale replica at the address of a node does not give the node's vote a second time, even if a restart forgets nothing.",
			Needs{Replica: true, Durable: true}, []fault.Verb{fault.Follow, fault.Lag}, fault.Promote),
	}
}

// forget is the script of these scenarios. It applies before, then A takes the lock, then it applies verbs; both to the
// shared nodes.
func (s *Stage) forget(ctx context.Context, before []fault.Verb, verbs ...fault.Verb) error {
	shared, _, _ := s.nodes()
	for _, verb := range before {
		if err := s.Begin(ctx, each(verb, shared)...); err != nil {
			return err
		}
	}
	split := s.split()
	if err := s.Begin(ctx, split...); err != nil {
		return err
	}
	var faults []fault.Fault
	for _, verb := range verbs {
		faults = append(faults, each(verb, shared)...)
	}
	got, err := s.lose(ctx, s.Patience(), faults...)
	if err != nil {
		return err
	}
	s.Expect(got, "the other client gets the lock within %v of the fault", s.Patience())
	return s.Heal(ctx, split...)
}

// lose lets A take the lock, makes the nodes lose it, and lets B try. Both work on the guarded resource. A reads before
// B and writes after it, so an update is lost if both hold the lock.
func (s *Stage) lose(ctx context.Context, patience time.Duration, faults ...fault.Fault) (got bool, err error) {
	return s.loseWith(ctx, func(ctx context.Context) (*traffic.Held, error) {
		if err := s.Begin(ctx, faults...); err != nil {
			return nil, err
		}
		return s.Try(ctx, s.B, patience), nil
	})
}

// loseWith is lose with more than faults: then does what happens, and lets B try.
func (s *Stage) loseWith(ctx context.Context, then func(context.Context) (*traffic.Held, error)) (got bool, err error) {
	a, err := s.Take(ctx, s.A)
	if err != nil {
		return false, err
	}
	b, err := then(ctx)
	if b != nil {
		// Long enough for a renewal by A, in which a good library notices the loss.
		_ = s.Sleep(ctx, s.TTL/2)
		b.Write()
	}
	s.Done(ctx, a)
	if b != nil {
		s.Release(ctx, b)
	}
	if err == nil {
		err = ctx.Err()
	}
	return b != nil, err
}
