package scenario

import (
	"context"
	"math/rand/v2"

	"github.com/quorumlock/redlock/chaos/fault"
)

// others are all other scenarios.
func others() []Scenario {
	return []Scenario{{
		Name:   "random",
		Short:  "faults of nodes in random order",
		Proves: "Whatever happens to the nodes, in any order, the lock has one owner at a time.",
		Faults: []string{"kill, pause, cut, cut-replies, delay, restart-empty and flushall of random nodes, from the seed"},
		Costs:  "no grants while a majority is down or in quarantine",
		Actors: 2,
		Play:   random,
	}}
}

var randomVerbs = []fault.Verb{
	fault.Kill, fault.Pause, fault.Cut, fault.CutReplies, fault.Delay, fault.RestartEmpty, fault.FlushAll,
}

func random(ctx context.Context, s *Stage) error {
	stop := s.contend(ctx, s.A, s.B)
	defer stop()
	schedule := fault.Random(s.Rand, s.Site.Nodes(), randomVerbs, max(s.Length*2/3, 2*s.TTL), s.TTL)
	for _, t := range schedule {
		s.Log.Note("planned: %v", t)
	}
	if err := s.Site.Run(ctx, schedule); err != nil {
		return err
	}
	s.Expect(s.AwaitGrants(ctx, 20, s.Patience()), "the lock is granted when all faults have healed")
	return ctx.Err()
}

// Fork makes a random generator for another goroutine. It is the same in every run with the same seed.
func (s *Stage) Fork() *rand.Rand { return rand.New(rand.NewPCG(s.Rand.Uint64(), 0)) }
