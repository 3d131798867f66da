package scenario

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// networks are the scenarios in which servers are healthy but not always reachable.
func networks() []Scenario {
	return []Scenario{
		{
			Name:   "lost-replies",
			Short:  "replies to an acquire are lost",
			Proves: "An acquire that the nodes grant but whose replies are lost leaves nothing behind for longer than the TTL.",
			Faults: []string{"cut-replies from all nodes to A", "the same from a majority of the nodes"},
			Costs:  "the TTL, if no release gets through",
			Actors: 2,
			Play:   lostReplies,
		},
		{
			Name:   "paused-node",
			Short:  "a node is paused during an acquire",
			Proves: "A node that is paused during an acquire and its release does not bring the lock back when it continues.",
			Faults: []string{"pause one of the nodes that two quorums share, while A acquires and releases the lock", "resume"},
			Costs:  "the vote of that node while it is paused",
			Actors: 2,
			Play:   pausedNode,
		},
		{
			Name:   "partial-views",
			Short:  "clients see different nodes",
			Proves: "Clients that see different parts of the fleet, with as few nodes in common as possible, exclude each other.",
			Faults: []string{
				"cut some nodes off from A and some from B, so that their quorums share as few nodes as possible; C sees all",
			},
			Costs: "the lock, for a client that sees no quorum",
			// Two permits are too few for three clients that see different nodes.
			Fails:  []string{"majority-semaphore"},
			Kinds:  true,
			Actors: 3,
			Needs:  Needs{Nodes: 3}, // the quorums of fewer have all nodes in common, so nothing would be cut
			Play: func(ctx context.Context, s *Stage) error {
				split := s.split()
				if err := s.Begin(ctx, split...); err != nil {
					return err
				}
				if err := s.fill(ctx); err != nil {
					return err
				}
				stop := s.contend(ctx, s.A, s.B, s.C)
				err := s.Sleep(ctx, max(s.Length/2, 2*s.TTL))
				stop()
				if err != nil {
					return err
				}
				return s.Heal(ctx, split...)
			},
		},
		{
			Name:   "slow-nodes",
			Short:  "nodes are slow",
			Proves: "A slow node slows nobody down who has a quorum without it; a slow quorum costs its delay, but not safety.",
			Faults: []string{"delay one node by TTL/16", "delay a quorum by TTL/64"},
			Costs:  "the delay of the quorum",
			Play:   slowNodes,
		},
		{
			Name:   "slow-replies",
			Short:  "replies to an acquire are late",
			Proves: "A client whose replies are late while it acquires does not believe for longer than its keys last.",
			Faults: []string{"hold back the replies of all nodes to A for TTL/2, while it acquires"},
			Costs:  "the lock, for a client that does not wait so long for its replies",
			Fails:  []string{"late-validity"},
			Actors: 2,
			Play:   slowReplies,
		},
	}
}

// fill lets A and B take all permits of a semaphore, and then C try to get one more. With other locks it does nothing.
func (s *Stage) fill(ctx context.Context) error {
	if s.Kind.Permits < 2 {
		return nil
	}
	former := s.Wants
	defer func() { s.Wants = former }()
	s.Wants[0].Permits, s.Wants[1].Permits = s.Kind.Permits-1, 1
	a, err := s.Take(ctx, s.A)
	if err != nil {
		return err
	}
	b, err := s.Take(ctx, s.B)
	if err == nil {
		c := s.Try(ctx, s.C, s.TTL/4)
		err = s.Sleep(ctx, s.TTL/20)
		s.Done(ctx, c)
	}
	s.Done(ctx, a)
	s.Done(ctx, b)
	return err
}

// contend lets actors contend for the lock until stop is called.
func (s *Stage) contend(ctx context.Context, actors ...*traffic.Actor) (stop func()) {
	return s.contendAt(ctx, s.Pace(), actors...)
}

func (s *Stage) contendAt(ctx context.Context, pace traffic.Pace, actors ...*traffic.Actor) (stop func()) {
	going, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	pace.Peers = actors
	for _, a := range actors {
		r := s.Fork()
		wg.Go(func() { a.Work(ctx, going, s.Lock, pace, r) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// Pace is the pace of the workers. Holders of permits stay longer, so that others come while all permits are taken.
func (s *Stage) Pace() traffic.Pace {
	p := traffic.Pace{Wait: 2 * s.TTL, Work: 2 * time.Millisecond, Pause: 8 * time.Millisecond, Kind: s.Kind}
	if s.Kind.Permits > 0 {
		p.Work *= 10
	}
	return p
}

func lostReplies(ctx context.Context, s *Stage) error {
	all := s.Site.Nodes()
	for _, mute := range [][]string{all, all[:Quorum(len(all))]} {
		var lost []fault.Fault
		for _, f := range each(fault.CutReplies, mute) {
			lost = append(lost, f.For(s.A.ID))
		}
		if err := s.Begin(ctx, lost...); err != nil {
			return err
		}
		a := s.TryOnce(ctx, s.A, s.TTL/2)
		if err := s.Heal(ctx, lost...); err != nil {
			return err
		}
		s.Done(ctx, a)
		b := s.Try(ctx, s.B, s.Patience())
		s.Expect(b != nil, "the lock is acquired when the replies of %d of %d nodes get through again", len(mute), len(all))
		s.Done(ctx, b)
	}
	return ctx.Err()
}

func pausedNode(ctx context.Context, s *Stage) error {
	shared, _, _ := s.nodes()
	for range 3 {
		pause := fault.On(fault.Pause, shared[0])
		if err := s.Begin(ctx, pause); err != nil {
			return err
		}
		a := s.TryOnce(ctx, s.A, 2*s.TTL)
		s.Done(ctx, a)
		if err := s.Heal(ctx, pause); err != nil {
			return err
		}
		// What the observer sees in this time decides: the key of a former owner, or nothing.
		if err := s.Sleep(ctx, s.TTL/2); err != nil {
			return err
		}
		b := s.Try(ctx, s.B, s.Patience())
		s.Expect(b != nil, "the lock is acquired after the node continues")
		s.Done(ctx, b)
	}
	return ctx.Err()
}

func slowNodes(ctx context.Context, s *Stage) error {
	all := s.Site.Nodes()
	for _, slow := range []struct {
		nodes []string
		by    time.Duration
	}{{all[:1], s.TTL / 16}, {all[:Quorum(len(all))], s.TTL / 64}} {
		faults := stepped(each(fault.Delay, slow.nodes), slow.by.Round(time.Millisecond))
		if err := s.Begin(ctx, faults...); err != nil {
			return err
		}
		if err := s.Sleep(ctx, max(s.Length/4, s.TTL)); err != nil {
			return err
		}
		if err := s.Heal(ctx, faults...); err != nil {
			return err
		}
		if err := s.Sleep(ctx, s.Length/8); err != nil {
			return err
		}
	}
	return nil
}

// slowReplies lets A acquire while its replies are late, and hold the lock for as long as it believes. B tries all that
// time. A lease that does not count from the beginning of the acquire outlives its keys by the time that the replies took.
func slowReplies(ctx context.Context, s *Stage) error {
	for range 2 {
		var late []fault.Fault
		for _, f := range each(fault.CutReplies, s.Site.Nodes()) {
			late = append(late, f.For(s.A.ID))
		}
		if err := s.Begin(ctx, late...); err != nil {
			return err
		}
		got := make(chan *traffic.Held, 1)
		go func() { got <- s.TryOnce(ctx, s.A, 2*s.TTL) }()
		err := errors.Join(s.Sleep(ctx, s.TTL/2), s.Heal(ctx, late...))
		a := <-got
		next := make(chan *traffic.Held, 1)
		go func() {
			b := s.Try(ctx, s.B, 2*s.TTL+s.Patience())
			if b != nil {
				b.Write() // at once, so that a write of A that comes later destroys it
			}
			next <- b
		}()
		s.hold(ctx, a, 2*s.TTL)
		b := <-next
		s.Expect(b != nil, "another client gets the lock when its holder no longer believes")
		if b != nil {
			s.Release(ctx, b)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// hold writes again and again while the holder believes, for at most this long, and then releases. A lease that is
// renewed would never end.
func (s *Stage) hold(ctx context.Context, h *traffic.Held, most time.Duration) {
	if h == nil {
		return
	}
	for end := time.Now().Add(most); time.Now().Before(end) && h.Write(); {
		if s.Sleep(ctx, s.TTL/50) != nil {
			break
		}
	}
	s.Release(ctx, h)
}
