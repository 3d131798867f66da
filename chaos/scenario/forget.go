package scenario

import (
	"context"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// quorumless are the baselines that a node which forgets gives two owners.
var quorumless = []string{"setnx-expire", "getset", "get-del", "single", "watchdog", "plain-redlock"}

// forgetting are those in which a node loses a lock that it had granted. A has the lock on one quorum, B sees
// another; the nodes in common are those that forget.
func forgetting() []Scenario {
	split := "cut A and B off, so that their quorums share as few nodes as can be"
	forget := func(name, how, proves string, needs Needs, before []fault.Verb, verbs ...fault.Verb) Scenario {
		return Scenario{
			Name: name, Proves: proves, Faults: []string{split, how}, Costs: "no grants for a quarantine",
			Fails: quorumless, Actors: 2, Needs: needs,
			Play: func(ctx context.Context, s *Stage) error { return s.forget(ctx, before, verbs...) },
		}
	}
	return []Scenario{
		forget("restart-empty", "kill and restart a shared node without its data",
			"A node that comes back empty does not give its vote a second time while the first may be in use.",
			Needs{Nodes: 1}, nil, fault.RestartEmpty),
		forget("flush", "FLUSHALL on a shared node",
			"A node that was flushed does not give its vote a second time while the first may be in use.",
			Needs{Nodes: 1}, nil, fault.FlushAll),
		forget("replace", "another, long-running server takes over a shared node's address",
			"Another server at a node's address does not give the node's vote a second time.",
			Needs{Spares: true}, nil, fault.Replace),
		forget("old-rdb", "kill a shared node, and restart it with an RDB from before the lock",
			"A node that comes back with old data does not give its vote a second time.",
			Needs{Nodes: 1}, []fault.Verb{fault.Save}, fault.RestartOldRDB),
		forget("stale-replica", "a shared node dies before the lock has reached its replica, which takes over the address",
			"A stale replica at a node's address does not give the node's vote a second time.",
			Needs{Replica: true}, []fault.Verb{fault.Follow, fault.Lag}, fault.Promote),
		forget("failback", "a shared node follows its own stale, detached replica, and is a master again: the same process, the same run id",
			"A node that took over the data of its own stale replica does not give its vote a second time.",
			Needs{Replica: true}, []fault.Verb{fault.Follow, fault.Detach}, fault.Failback),
		forget("durable-stale-replica", "the same as stale-replica, where every server persists each write before it answers, and the lock is told so",
			"A stale replica at a node's address does not give the node's vote a second time, also where a restart would forget nothing.",
			Needs{Replica: true, Durable: true}, []fault.Verb{fault.Follow, fault.Lag}, fault.Promote),
	}
}

// forget is the script of all of them: before the lock is taken, and then to the nodes in common.
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

// lose has A take the lock, makes the nodes lose it, and has B try. Both work on what the lock guards: A
// reads before B and writes after it, so that an update is lost if both may.
func (s *Stage) lose(ctx context.Context, patience time.Duration, faults ...fault.Fault) (got bool, err error) {
	return s.loseWith(ctx, func(ctx context.Context) (*traffic.Held, error) {
		if err := s.Begin(ctx, faults...); err != nil {
			return nil, err
		}
		return s.Try(ctx, s.B, patience), nil
	})
}

// loseWith is lose for what is more than faults: then does them, and has B try.
func (s *Stage) loseWith(ctx context.Context, then func(context.Context) (*traffic.Held, error)) (got bool, err error) {
	a, err := s.Take(ctx, s.A)
	if err != nil {
		return false, err
	}
	b, err := then(ctx)
	if b != nil {
		// Long enough for a renewal of A's: a library that tells its holder of a loss then has.
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
