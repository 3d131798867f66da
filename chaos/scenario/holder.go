package scenario

import (
	"context"
	"errors"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// holders are the scenarios in which the holder of the lock has a problem.
func holders() []Scenario {
	return []Scenario{
		{
			Name:   "stopped-holder",
			Short:  "the holder is stopped for longer than its TTL",
			Proves: "A holder that is stopped for longer than its TTL and then writes is refused by a resource that compares fencing tokens.",
			Faults: []string{"SIGSTOP the holder between its check of the lease and its write, until another client has held the lock"},
			Costs:  "a stale write if the resource does not compare fencing tokens: no lock can prevent that",
			Fails:  []string{"watchdog"},
			Actors: 2, Needs: Needs{Child: true},
			Play: stoppedHolder,
		},
		{
			Name:   "dead-holder",
			Short:  "the holder dies",
			Proves: "When a client dies at the worst moment of an acquire, the lock is free again after its TTL.",
			Faults: []string{"SIGKILL the client between two commands of an acquire, if it needs two; otherwise when it has the lock"},
			Costs:  "the TTL",
			Fails:  []string{"setnx-expire"},
			Actors: 2, Needs: Needs{Child: true},
			Play: deadHolder,
		},
		{
			Name:   "late-release",
			Short:  "a release arrives after the TTL",
			Proves: "A release that arrives after its lease is over does not end the lease of another client.",
			Faults: []string{"delay A's release until after its TTL: between its two commands, if there are two; and on the network"},
			Costs:  "the TTL",
			Fails:  []string{"get-del"},
			Actors: 3,
			Play:   lateRelease,
		},
	}
}

func stoppedHolder(ctx context.Context, s *Stage) (err error) {
	child, err := s.Child()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	if err := s.stopWithLock(ctx, child); err != nil {
		return err
	}
	// A stopped process does not renew, so its lock ends with its TTL.
	b := s.Try(ctx, s.B, s.Patience())
	s.Expect(b != nil, "another client gets the lock of a stopped holder")
	if b != nil {
		b.Write()
	}
	if _, err := child.Continue(); err != nil {
		return err
	}
	if b != nil {
		s.Release(ctx, b)
	}
	return child.Release(s.TTL)
}

// stopWithLock lets the child take the lock and stops it just before its write. On a machine with too much to do, the lease
// may be over before the child looks at it: then the child takes the lock again.
func (s *Stage) stopWithLock(ctx context.Context, child *traffic.ChildActor) error {
	ctx, done := context.WithTimeout(ctx, takeTime)
	defer done()
	for {
		if err := s.takeInChild(ctx, child, false); err != nil {
			return err
		}
		err := child.StopBeforeWrite()
		if !errors.Is(err, traffic.ErrLeaseOver) || ctx.Err() != nil {
			return err
		}
		if err := child.Release(s.TTL); err != nil {
			return err
		}
	}
}

// takeInChild is Take for the child.
func (s *Stage) takeInChild(ctx context.Context, child *traffic.ChildActor, die bool) error {
	ctx, done := context.WithTimeout(ctx, takeTime)
	defer done()
	for {
		err := child.Acquire(s.Lock, s.Wants[0], s.Patience(), die)
		if !errors.Is(err, traffic.ErrNotGranted) || ctx.Err() != nil {
			return err
		}
		_ = s.Sleep(ctx, s.TTL/50)
	}
}

func deadHolder(ctx context.Context, s *Stage) (err error) {
	child, err := s.Child()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	if err := s.takeInChild(ctx, child, true); !errors.Is(err, traffic.ErrDied) {
		return errors.Join(errors.New("the client should have died and did not"), err)
	}
	b := s.Try(ctx, s.B, 2*s.TTL)
	s.Expect(b != nil, "another client gets the lock within two TTLs of the death of its holder")
	if b == nil { // so that the judge can distinguish a lock that is late from one that stays
		err = s.Sleep(ctx, s.TTL+check.OrphanMargin+s.TTL/2)
	}
	s.Done(ctx, b)
	return err
}

func lateRelease(ctx context.Context, s *Stage) error {
	// Between two commands.
	between := func() (<-chan struct{}, func() error, error) {
		reached, open := s.Gap.Shut()
		return reached, func() error { open(); return nil }, nil
	}
	if err := s.releaseLate(ctx, between); err != nil {
		return err
	}
	// On the network.
	var away []fault.Fault
	for _, f := range each(fault.Cut, s.Site.Nodes()) {
		away = append(away, f.For(s.A.ID))
	}
	return s.releaseLate(ctx, func() (<-chan struct{}, func() error, error) {
		held := make(chan struct{})
		close(held)
		return held, func() error { return s.Heal(ctx, away...) }, s.Begin(ctx, away...)
	})
}

// releaseLate lets A release and B take the lock. hold delays the release, after A has taken the lock: late is closed when
// it is on its way, and let lets it arrive. Then C tries.
func (s *Stage) releaseLate(ctx context.Context, hold func() (late <-chan struct{}, let func() error, err error)) error {
	a, err := s.Take(ctx, s.A)
	if err != nil {
		return err
	}
	a.Write()
	late, let, err := hold()
	released := make(chan struct{})
	go func() {
		defer close(released)
		s.Release(ctx, a)
	}()
	select {
	case <-late:
	case <-released: // in one command: nothing is delayed
	}
	var b, c *traffic.Held
	if err == nil {
		b = s.Try(ctx, s.B, s.Patience())
		s.Expect(b != nil, "another client gets the lock when the lease is over")
	}
	err = errors.Join(err, let())
	<-released
	if b != nil {
		c = s.Try(ctx, s.C, s.TTL/4)
		b.Write()
		s.Done(ctx, c)
		s.Release(ctx, b)
	}
	return errors.Join(err, ctx.Err())
}
