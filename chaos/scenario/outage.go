package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// oneMaster are the baselines on one master.
var oneMaster = []string{"setnx-expire", "getset", "get-del", "single", "watchdog"}

// outages are the scenarios in which nodes die.
func outages() []Scenario {
	return []Scenario{
		{
			Name:   "control",
			Short:  "no fault",
			Proves: "Without any fault one client at a time holds the lock, and no check reports anything.",
			Costs:  "nothing",
			Play:   func(ctx context.Context, s *Stage) error { return s.Sleep(ctx, s.Length/2) },
		},
		{
			Name:   "kill-minority",
			Short:  "a minority dies, then one more",
			Proves: "While a minority of the nodes is dead, the lock works. If one more dies, nothing is granted. When they are back, it is granted again.",
			Faults: []string{"kill ⌊(N−1)/2⌋ nodes", "kill one more", "start all of them, empty"},
			Costs:  "no grants while a majority is down, and for one quarantine after that",
			Needs:  Needs{Nodes: 3},
			Play:   killMinority,
		},
		{
			Name:   "killed-while-acquiring",
			Short:  "a node dies after its grant",
			Proves: "A node that dies between its grant and the lease does not affect safety: fencing tokens stay unique and grow.",
			Faults: []string{"cut-replies, so that the vote is undecided", "kill a node that has granted", "heal", "start it, empty"},
			Costs:  "a refused acquire",
			Actors: 2, Needs: Needs{Nodes: 3},
			Play: killedWhileAcquiring,
		},
		{
			Name:   "rolling-restart",
			Short:  "every node restarts empty, in turn",
			Proves: "A lease that is renewed survives the restart of every node, one after another and without its data.",
			Faults: []string{"restart-empty each node in turn, further apart than a quarantine"},
			Costs:  "nothing; a lease that is not renewed ends by its TTL",
			Fails:  oneMaster,
			Actors: 2,
			Play:   rollingRestart,
		},
		{
			Name:   "failover",
			Short:  "a stale replica is promoted",
			Proves: "When a primary dies before the lock has reached its replica, and the replica is promoted, the lock still has one owner.",
			Faults: []string{"follow(node-1)", "lag(node-1)", "promote(node-1)"},
			Costs:  "the vote of one node, for one quarantine",
			Fails:  append([]string{"reader-counter"}, oneMaster...),
			Kinds:  true,
			Actors: 2, Needs: Needs{Replica: true},
			Play: failover,
		},
	}
}

func killMinority(ctx context.Context, s *Stage) error {
	all := s.Site.Nodes()
	few := each(fault.Kill, all[:(len(all)-1)/2])
	if err := s.Begin(ctx, few...); err != nil {
		return err
	}
	s.Expect(s.AwaitGrants(ctx, 20, s.Patience()), "the lock is granted while %d of %d nodes are dead", len(few), len(all))
	more := fault.On(fault.Kill, all[len(few)])
	if err := s.Begin(ctx, more); err != nil {
		return err
	}
	// A grant from before the kill may be reported after it. After one TTL there can be none.
	if err := s.Sleep(ctx, s.TTL); err != nil {
		return err
	}
	if len(all)-len(few)-1 < Quorum(len(all)) {
		s.Expect(!s.AwaitGrants(ctx, 1, s.TTL), "nothing is granted while %d of %d nodes are dead", len(few)+1, len(all))
	}
	if err := s.Heal(ctx, append(few, more)...); err != nil {
		return err
	}
	s.Expect(s.AwaitGrants(ctx, 20, s.Patience()), "the lock is granted again when the nodes are back")
	return ctx.Err()
}

func killedWhileAcquiring(ctx context.Context, s *Stage) error {
	all := s.Site.Nodes()
	for round := range 3 {
		// A gets replies from one node too few for a quorum, until the other replies are let through.
		order := s.Rand.Perm(len(all))
		var silent []fault.Fault
		for _, i := range order[Quorum(len(all))-1:] {
			silent = append(silent, fault.On(fault.CutReplies, all[i]).For(s.A.ID))
		}
		dies := fault.On(fault.Kill, silent[0].Node)
		if err := s.Begin(ctx, silent...); err != nil {
			return err
		}
		got := make(chan *traffic.Held, 1)
		go func() { got <- s.TryOnce(ctx, s.A, s.Patience()) }()
		err := errors.Join(
			s.Sleep(ctx, s.TTL/20), // for the nodes to grant
			s.Begin(ctx, dies),
			s.Heal(ctx, silent...),
		)
		a := <-got
		if err != nil {
			return err
		}
		if a != nil {
			s.Done(ctx, a)
		}
		b := s.Try(ctx, s.B, s.Patience())
		if b != nil {
			s.Done(ctx, b)
		}
		if err := s.Heal(ctx, dies); err != nil {
			return err
		}
		s.Expect(a != nil || b != nil, "in round %d a client got the lock", round+1)
		if err := s.Sleep(ctx, s.quarantine()); err != nil {
			return err
		}
	}
	return nil
}

// quarantine is longer than the quarantine of a careful library after a node forgot.
func (s *Stage) quarantine() time.Duration { return 2*s.TTL + s.TTL/4 }

func rollingRestart(ctx context.Context, s *Stage) error {
	a, err := s.Take(ctx, s.A)
	if err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	next := make(chan *traffic.Held, 1)
	go func() { next <- s.Persist(waiting, s.B) }()
	survived := true
	for _, node := range s.Site.Nodes() {
		if err = s.Begin(ctx, fault.On(fault.RestartEmpty, node)); err != nil {
			break
		}
		if err = s.Sleep(ctx, s.quarantine()); err != nil {
			break
		}
	}
	select {
	case <-a.Lost():
		survived = false
	default:
	}
	if err == nil && s.Renews {
		s.Expect(survived && a.Valid(), "the lease that was renewed all the time is still valid")
	}
	s.Done(ctx, a)
	if err != nil {
		stop()
	}
	defer time.AfterFunc(s.Patience(), stop).Stop()
	s.Done(ctx, <-next)
	return err
}

func failover(ctx context.Context, s *Stage) error {
	const primary = "node-1"
	if err := s.Begin(ctx, fault.On(fault.Follow, primary), fault.On(fault.Lag, primary)); err != nil {
		return err
	}
	_, err := s.lose(ctx, 2*s.TTL, fault.On(fault.Promote, primary)) // a lease that is renewed may last longer than B waits
	return err
}
