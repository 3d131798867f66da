package scenario

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	"github.com/quorumlock/redlock/internal/sleep"
)

// A Stage is everything that a script uses: the fleet, and the clients that follow the script.
type Stage struct {
	Site   *fault.Site
	Log    *traffic.Log
	TTL    time.Duration
	Length time.Duration // of the whole run, at least; the script may take longer
	Rand   *rand.Rand
	Renews bool // the subject renews leases until they are released
	Kind   subject.Kind
	Wants  [3]subject.Want // what clients 1, 2 and 3 want when they follow the script; see Wants

	A, B, C *traffic.Actor   // clients 1, 2 and 3; nil if Scenario.Actors is less
	Lock    *traffic.Guarded // what they contend for
	Gap     *Gap             // where A can be delayed
	Child   func() (*traffic.ChildActor, error)
	// Close closes an actor's client, like a process that exits normally. Reopen gives it a new one.
	Close  func(*traffic.Actor) error
	Reopen func(context.Context, *traffic.Actor) error

	mu    sync.Mutex // guards unmet
	unmet []string
}

// UnmetNote begins the note of an expectation that was not met.
const UnmetNote = "NOT as expected: "

// Expect records whether an expectation of the scenario was met.
func (s *Stage) Expect(ok bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if ok {
		s.Log.Note("as expected: %s", text)
		return
	}
	s.Log.Note("%s%s", UnmetNote, text)
	s.mu.Lock()
	s.unmet = append(s.unmet, text)
	s.mu.Unlock()
}

// Unmet returns the expectations that were not met.
func (s *Stage) Unmet() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.unmet...)
}

// Begin applies faults, one after another.
func (s *Stage) Begin(ctx context.Context, faults ...fault.Fault) error {
	for _, f := range faults {
		if err := s.Site.Begin(ctx, f); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Heal ends faults, one after another.
func (s *Stage) Heal(ctx context.Context, faults ...fault.Fault) error {
	for _, f := range faults {
		if err := s.Site.Heal(ctx, f); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// nodes returns the names of the nodes that A's and B's quorum share, of the rest of A's quorum, and of the rest of
// B's.
func (s *Stage) nodes() (shared, onlyA, onlyB []string) {
	all := s.Site.Nodes()
	q, both := Quorum(len(all)), Shared(len(all))
	return all[:both], all[both:q], all[q:]
}

// each returns a fault with this verb for each of the nodes.
func each(verb fault.Verb, nodes []string) (faults []fault.Fault) {
	for _, n := range nodes {
		faults = append(faults, fault.On(verb, n))
	}
	return faults
}

// split returns the faults that leave A and B one quorum each, with as few common nodes as possible.
func (s *Stage) split() (faults []fault.Fault) {
	_, onlyA, onlyB := s.nodes()
	for _, f := range each(fault.Cut, onlyB) {
		faults = append(faults, f.For(s.A.ID))
	}
	for _, f := range each(fault.Cut, onlyA) {
		faults = append(faults, f.For(s.B.ID))
	}
	return faults
}

// Patience is how long an acquire may take if the lease of another client, or the quarantine of a careful library, must
// end first.
func (s *Stage) Patience() time.Duration { return 4*s.TTL + time.Second }

// Try lets an actor try to acquire the lock for at most this long. The results are recorded. nil: it did not get the
// lock. If the library gives up with an error, as on a connection that a fault broke, the actor tries again: otherwise
// nobody would ask for a lock that another believes in, and the run would show nothing.
func (s *Stage) Try(ctx context.Context, a *traffic.Actor, patience time.Duration) *traffic.Held {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	return s.Persist(ctx, a)
}

// TryOnce is Try in one call, for a fault that must meet that call.
func (s *Stage) TryOnce(ctx context.Context, a *traffic.Actor, patience time.Duration) *traffic.Held {
	held, _ := s.acquire(ctx, a, patience)
	return held
}

func (s *Stage) acquire(ctx context.Context, a *traffic.Actor, patience time.Duration) (*traffic.Held, error) {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	held, err := a.Acquire(ctx, s.Lock, s.Wants[a.ID-1])
	if err == nil && held.IsGiver() { // a lock that was handed over is held like any other
		held, err = held.HandOver(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	held.Read()
	return held, nil
}

// Wants returns what the clients of a script want, so that they exclude each other: A all permits of a semaphore and the
// others one each; of a read–write lock, the seed decides which of A and B is a reader, if any.
func Wants(kind subject.Kind, seed uint64) [3]subject.Want {
	reader := subject.Want{Reader: true}
	switch {
	case kind.Permits > 0:
		return [3]subject.Want{{Permits: kind.Permits}, {Permits: 1}, {Permits: 1}}
	case kind.Lock != history.ReadWrite:
		return [3]subject.Want{}
	case seed%3 == 0:
		return [3]subject.Want{{}, reader, {}}
	case seed%3 == 1:
		return [3]subject.Want{reader, {}, {}}
	}
	return [3]subject.Want{}
}

// Persist tries until the actor has the lock or ctx ends, even if the library gives up with an error.
func (s *Stage) Persist(ctx context.Context, a *traffic.Actor) *traffic.Held {
	held, _ := s.persist(ctx, a)
	return held
}

func (s *Stage) persist(ctx context.Context, a *traffic.Actor) (held *traffic.Held, err error) {
	for ctx.Err() == nil {
		if held, err = s.acquire(ctx, a, s.Patience()); err == nil {
			return held, nil
		}
		_ = s.Sleep(ctx, s.TTL/50)
	}
	return nil, cmp.Or(err, ctx.Err())
}

// takeTime bounds Take. A free lock is taken in milliseconds; on a machine with too much to do, attempts may fail.
const takeTime = 30 * time.Second

// Take acquires a lock that nobody else wants: the scenario cannot go on without it. It tries again after an error.
func (s *Stage) Take(ctx context.Context, a *traffic.Actor) (*traffic.Held, error) {
	ctx, done := context.WithTimeout(ctx, takeTime)
	defer done()
	held, err := s.persist(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("client %d did not get a lock that nobody else wanted: %w", a.ID, err)
	}
	return held, nil
}

// Done writes and releases.
func (s *Stage) Done(ctx context.Context, h *traffic.Held) {
	if h == nil {
		return
	}
	h.Write()
	s.Release(ctx, h)
}

// Release releases. Its error is recorded: for a lost lock an error is correct.
func (s *Stage) Release(ctx context.Context, h *traffic.Held) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), s.TTL)
	defer done()
	_ = h.Release(ctx)
}

// Sleep returns early only if ctx ends.
func (s *Stage) Sleep(ctx context.Context, d time.Duration) error { return sleep.For(ctx, d) }

// AwaitGrants waits for n more grants, to any client and for any name. It reports whether they came.
func (s *Stage) AwaitGrants(ctx context.Context, n int, patience time.Duration) bool {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	before, changed := s.Log.Granted()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
		var count int
		if count, changed = s.Log.Granted(); count >= before+n {
			return true
		}
	}
}

// A Gap delays a client between two commands of its lock, as a slow network or a stopped process does.
type Gap struct {
	mu      sync.Mutex // guards the rest; nothing waits under it
	reached chan struct{}
	open    chan struct{} // nil: nobody is delayed
}

// Shut delays the next client that reaches the gap. reached is closed when it has come; open lets it continue.
func (g *Gap) Shut() (reached <-chan struct{}, open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	way := make(chan struct{})
	g.reached, g.open = make(chan struct{}), way
	return g.reached, sync.OnceFunc(func() {
		g.mu.Lock()
		g.open = nil
		g.mu.Unlock()
		close(way)
	})
}

// Step is for subject.Options.
func (g *Gap) Step(string) error {
	g.mu.Lock()
	open, reached := g.open, g.reached
	g.reached = nil
	g.mu.Unlock()
	if open == nil {
		return nil
	}
	if reached != nil {
		close(reached)
	}
	<-open
	return nil
}
