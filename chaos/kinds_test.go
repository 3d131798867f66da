//go:build unix

package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/fleet"
)

// The seeds differ, so that the script of a read–write lock has a reader first, a writer first, and two writers.
func TestEachKindOfLockIsSafeInItsScenarios(t *testing.T) {
	scenarios := 0
	for _, play := range scenario.All() {
		if !play.Kinds {
			continue
		}
		scenarios++
		for i, s := range subject.Ours()[1:] {
			t.Run(play.Name+"/"+s.Name(), func(t *testing.T) {
				t.Parallel()
				o := short(t, fleet.Process, play.Name, s.Name())
				o.TTL, o.Seed = time.Second, uint64(1+i+scenarios)
				outcome := run(t, o)
				requireSafe(t, outcome)
				assert.Equal(t, subject.KindOf(s).Lock, outcome.Lock)
				assert.Zero(t, outcome.Overtakings)
				assert.Zero(t, outcome.Confirmed.TooLong, "%v", outcome.LeftOut)
				requireUsed(t, outcome, subject.KindOf(s).Lock)
			})
		}
	}
	require.Equal(t, 4, scenarios)
}

// requireUsed requires that the run has what is special in the kind of lock.
func requireUsed(t *testing.T, o *chaos.Outcome, kind history.LockKind) {
	t.Helper()
	for _, special := range map[history.LockKind][]string{
		history.Fair:      {`"kind":"queued"`},
		history.ReadWrite: {`"role":"reader"`},
		history.Semaphore: {`"permits":1`}, // the first line has all of them
		history.HandOver:  {`"handed":true`, `"from":`},
	}[kind] {
		assert.Contains(t, string(o.History), special)
	}
}

// A pretender is a lock that promises more than it keeps. None of them needs a fault to be found.
type pretender struct {
	subject.Subject
	kind subject.Kind
	wrap func(c subject.Client, o subject.Options) subject.Client
}

func (p pretender) Kind() subject.Kind { return p.kind }

func (p pretender) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := p.Subject.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return p.wrap(c, o), nil
}

// notInOrder polls, and says that each call has its place in an order of arrival.
type notInOrder struct {
	subject.Client
	queued subject.QueuedFunc
}

func (c notInOrder) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	c.queued(ctx, time.Now())
	return c.Client.Acquire(ctx, name)
}

// releases hands a lock over, and makes a reader of a writer, by a release and another acquire.
type releases struct {
	subject.Client
	want subject.Want
}

func (c releases) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	return c.AcquireAs(ctx, name, subject.Want{})
}

func (c releases) AcquireAs(ctx context.Context, name string, w subject.Want) (subject.Lease, error) {
	lease, err := subject.Acquire(ctx, c.Client, name, w)
	if err != nil {
		return nil, err
	}
	if c.want.Reader {
		return gapOfAWriter{leaseOf{lease, c, name}}, nil
	}
	return gapOfAGiver{leaseOf{lease, c, name}}, nil
}

func (c releases) Adopt(ctx context.Context, ticket string) (subject.Lease, error) {
	return c.Acquire(ctx, ticket)
}

type leaseOf struct {
	subject.Lease
	client releases
	name   string
}

type gapOfAGiver struct{ leaseOf }

func (l gapOfAGiver) Detach(ctx context.Context) (string, error) { return l.name, l.Release(ctx) }

type gapOfAWriter struct{ leaseOf }

func (l gapOfAWriter) Downgrade(ctx context.Context) (subject.Lease, error) {
	if err := l.Release(ctx); err != nil {
		return nil, err
	}
	return l.client.AcquireAs(ctx, l.name, l.client.want)
}

func TestALockThatPretendsToBeOfAKindIsFound(t *testing.T) {
	single, err := subject.ByName("single")
	require.NoError(t, err)
	gap := func(w subject.Want) func(subject.Client, subject.Options) subject.Client {
		return func(c subject.Client, _ subject.Options) subject.Client { return releases{c, w} }
	}
	for name, p := range map[string]struct {
		pretender
		finds check.ViolationKind
	}{
		"fair": {pretender{single, subject.Kind{Lock: history.Fair}, func(c subject.Client, o subject.Options) subject.Client {
			return notInOrder{c, o.Queued}
		}}, check.Overtaken},
		"hand-over": {pretender{single, subject.Kind{Lock: history.HandOver}, gap(subject.Want{})}, check.Overlap},
		"downgrade": {pretender{subject.ReaderCounter{}, subject.Kind{Lock: history.ReadWrite}, gap(subject.Want{Reader: true})},
			check.Overlap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := short(t, fleet.Embedded, "control", "single")
			o.Subject = p.pretender
			outcome := runUntilUnsafe(t, o)
			assert.Equal(t, check.Unsafe, outcome.Verdict)
			kinds := map[check.ViolationKind]bool{}
			for _, v := range outcome.Violations {
				kinds[v.Kind] = true
			}
			assert.True(t, kinds[p.finds], "%v", outcome.Violations)
		})
	}
}
