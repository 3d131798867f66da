package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// clocks are the scenarios in which a wall clock steps.
func clocks() []Scenario {
	return []Scenario{
		{
			Name:   "clock-ahead",
			Short:  "a server's clock jumps ahead",
			Proves: "A server whose clock jumps ahead, so that a lock expires too early, does not vote a second time.",
			Faults: []string{"cut some nodes off from A and some from B, so that their quorums share as few nodes as possible", "clock +60s on the shared nodes"},
			Costs:  "no grants that need the node, until its clock is correct",
			// getset stores the expiry in the value, so the server does not expire it.
			Fails: []string{
				"setnx-expire", "get-del", "single", "watchdog", "reader-counter", "majority-semaphore", "plain-redlock",
			},
			Kinds: true, Actors: 2, Needs: Needs{Clocks: true},
			Play: clockAhead,
		},
		{
			Name:   "clock-behind",
			Short:  "a server's clock jumps back",
			Proves: "A server whose clock jumps back, so that the lock of a dead holder lasts longer, blocks nobody who has a quorum without it.",
			Faults: []string{"clock −120s on the nodes that two quorums share, while A holds", "A is cut off for good"},
			Costs:  "the vote of that node, until its clock is correct",
			Actors: 2, Needs: Needs{Clocks: true, Nodes: 3},
			Play: clockBehind,
		},
		{
			Name:   "clock-behind-at-boot",
			Short:  "a node starts with its clock behind",
			Proves: "A node that boots empty with its clock behind, and whose clock is then corrected, does not vote a second time.",
			Faults: []string{
				"cut some nodes off from A and some from B, so that their quorums share as few nodes as possible", "kill the shared nodes while A holds",
				"start them empty with their clocks 30s behind", "correct their clocks", "open B's client again",
			},
			Costs:  "the vote of that node, for one quarantine",
			Fails:  quorumless,
			Actors: 2, Needs: Needs{Clocks: true},
			MinTTL: 2 * time.Second, // so that A still believes while all of this happens
			Play:   clockBehindAtBoot,
		},
		{
			Name:   "clock-swings",
			Short:  "a server's clock jumps back and forth",
			Proves: "While a server's clock jumps forward and back under contention, the lock has one owner at a time.",
			Faults: []string{"clock +60s and −120s in turn on the nodes that two quorums share"},
			Costs:  "the vote of that node",
			Actors: 2, Needs: Needs{Clocks: true, Nodes: 3},
			Play: clockSwings,
		},
		{
			Name:   "client-clock",
			Short:  "a client's clock is ahead",
			Proves: "A client whose wall clock is ahead does not take a lock that is held.",
			Faults: []string{"client-clock +60s on B, while A holds"},
			Costs:  "nothing",
			Fails:  []string{"getset"},
			Actors: 2, Needs: Needs{ClientClock: true},
			Play: clientClock,
		},
	}
}

func stepped(faults []fault.Fault, by time.Duration) []fault.Fault {
	for i := range faults {
		faults[i].By = by
	}
	return faults
}

func clockAhead(ctx context.Context, s *Stage) error {
	shared, _, _ := s.nodes()
	split := s.split()
	if err := s.Begin(ctx, split...); err != nil {
		return err
	}
	step := stepped(each(fault.Clock, shared), 60*time.Second)
	if _, err := s.lose(ctx, 2*s.TTL, step...); err != nil {
		return err
	}
	if err := s.Heal(ctx, append(split, step...)...); err != nil {
		return err
	}
	s.Expect(s.AwaitGrants(ctx, 20, s.Patience()), "the lock is granted when all clocks are correct again")
	return ctx.Err()
}

func clockBehind(ctx context.Context, s *Stage) error {
	shared, _, _ := s.nodes()
	a, err := s.Take(ctx, s.A)
	if err != nil {
		return err
	}
	step := stepped(each(fault.Clock, shared), -120*time.Second)
	if err := s.Begin(ctx, step...); err != nil {
		s.Done(ctx, a)
		return err
	}
	var away []fault.Fault
	for _, f := range each(fault.Cut, s.Site.Nodes()) {
		away = append(away, f.For(s.A.ID))
	}
	err = s.Begin(ctx, away...)
	if err == nil {
		b := s.Try(ctx, s.B, s.Patience())
		s.Expect(b != nil, "another client gets the lock although the clocks of %v went back", shared)
		s.Done(ctx, b)
		err = s.Heal(ctx, append(step, away...)...)
	}
	s.Done(ctx, a)
	return err
}

func clockBehindAtBoot(ctx context.Context, s *Stage) error {
	shared, _, _ := s.nodes()
	split := s.split()
	if err := s.Begin(ctx, split...); err != nil {
		return err
	}
	killed, behind := each(fault.Kill, shared), stepped(each(fault.Clock, shared), -30*time.Second)
	got, err := s.loseWith(ctx, func(ctx context.Context) (*traffic.Held, error) {
		err := errors.Join(s.Begin(ctx, append(killed, behind...)...), s.Heal(ctx, killed...))
		if err != nil {
			return nil, err
		}
		// Long enough to be refused: the node is in quarantine, by a clock that is behind.
		if b := s.Try(ctx, s.B, s.TTL/4); b != nil {
			return b, s.Heal(ctx, behind...)
		}
		if err := errors.Join(s.Heal(ctx, behind...), s.restart(ctx, s.B)); err != nil {
			return nil, err
		}
		return s.Try(ctx, s.B, s.Patience()), nil
	})
	if err != nil {
		return err
	}
	s.Expect(got, "the other client gets the lock within %v of the fault", s.Patience())
	return s.Heal(ctx, split...)
}

func clockSwings(ctx context.Context, s *Stage) error {
	stop := s.contend(ctx, s.A, s.B)
	defer stop()
	shared, _, _ := s.nodes()
	for end := time.Now().Add(s.Length / 2); time.Now().Before(end); {
		for _, by := range []time.Duration{60 * time.Second, -120 * time.Second} {
			step := stepped(each(fault.Clock, shared), by)
			if err := s.Begin(ctx, step...); err != nil {
				return err
			}
			if err := s.Sleep(ctx, s.TTL/4); err != nil {
				return err
			}
			if err := s.Heal(ctx, step...); err != nil {
				return err
			}
		}
	}
	return nil
}

func clientClock(ctx context.Context, s *Stage) error {
	ahead := fault.Fault{Verb: fault.ClientClock, Client: s.B.ID, By: 60 * time.Second}
	if _, err := s.lose(ctx, s.TTL/2, ahead); err != nil {
		return err
	}
	return s.Heal(ctx, ahead)
}
