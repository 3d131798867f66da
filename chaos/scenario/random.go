package scenario

import (
	"context"
	"math/rand/v2"

	"github.com/quorumlock/redlock/chaos/fault"
)

// others are those that are none of the above.
func others() []Scenario {
	return []Scenario{{
		Name:   "random",
		Proves: "Whatever happens to the nodes in whatever order, the lock has one owner at a time.",
		Faults: []string{"kill, pause, cut, cut-replies, delay, restart-empty and flushall of nodes at random, from the seed"},
		Costs:  "no grants while a majority is away or in quarantine",
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
	s.Expect(s.AwaitGrants(ctx, 20, s.Patience()), "the lock is granted when all is well again")
	return ctx.Err()
}

// Fork makes a generator for a goroutine of its own. It is the same in every run of one seed.
func (s *Stage) Fork() *rand.Rand { return rand.New(rand.NewPCG(s.Rand.Uint64(), 0)) }
