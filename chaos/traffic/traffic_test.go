package traffic_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a lock in this process that can misbehave.
type fake struct {
	held   chan struct{} // holds one while the lock is free
	fence  atomic.Uint64
	valid  atomic.Bool
	lost   chan struct{}
	broken string // the method that panics
	stuck  chan struct{}
}

func newFake() *fake {
	f := &fake{held: make(chan struct{}, 1), lost: make(chan struct{})}
	f.held <- struct{}{}
	f.valid.Store(true)
	return f
}

func (f *fake) panics(method string) {
	if f.broken == method {
		panic("out of " + method)
	}
}

func (f *fake) Acquire(ctx context.Context, _ string) (subject.Lease, error) {
	f.panics("Acquire")
	if f.stuck != nil {
		<-f.stuck
	}
	select {
	case <-f.held:
		f.fence.Add(1)
		return f, nil
	case <-ctx.Done():
		return nil, errors.Join(subject.ErrRefused, ctx.Err())
	}
}

func (f *fake) Valid() bool {
	f.panics("Valid")
	return f.valid.Load()
}

func (f *fake) Release(context.Context) error {
	f.panics("Release")
	f.held <- struct{}{}
	return errors.New("not sure")
}

func (f *fake) Lost() <-chan struct{} { return f.lost }
func (f *fake) Fence() uint64         { return f.fence.Load() }
func (f *fake) Token() string         { return "token" }
func (f *fake) Close() error          { return nil }

// A bench is a log with one actor.
type bench struct {
	t    *testing.T
	text bytes.Buffer
	log  *traffic.Log
	fake *fake
	*traffic.Actor
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, fake: newFake()}
	b.log = traffic.NewLog(&b.text, history.Run{Nodes: []string{"node-1"}, TTL: int64(time.Second)})
	b.Actor = traffic.NewActor(1, b.fake, b.log)
	return b
}

// events ends the log and reads it, which checks that the order of the events is valid.
func (b *bench) events() []history.Event {
	require.NoError(b.t, b.log.Close())
	events, err := history.ReadAll(&b.text)
	require.NoError(b.t, err)
	return events
}

func kinds(events []history.Event) (all []history.Kind) {
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return all
}

// A hanging lock waits in its first call for something that never comes.
type hanging struct {
	*fake
	calls int
}

func (h *hanging) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	if h.calls++; h.calls == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.fake.Acquire(ctx, name)
}

func TestAFirstTryThatHangsDoesNotUseUpTheTimeOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &hanging{fake: newFake()}
		actor := traffic.NewActor(1, client, traffic.NewLog(new(bytes.Buffer), history.Run{}))
		ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
		defer done()
		require.NoError(t, actor.Warm(ctx, "warm"))
		require.Equal(t, 2, client.calls)
	})
}

func TestALeaseIsRecordedFromTheAskingToItsEnd(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	h, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	h.Read()
	require.True(t, h.Write())
	require.ErrorContains(t, h.Release(t.Context()), "not sure")
	events := b.events()
	require.Equal(t, []history.Kind{
		history.Start, history.Acquire, history.Granted, history.Read, history.Read,
		history.Write, history.Written, history.Write, history.Written, history.Release, history.Freed, history.End,
	}, kinds(events))
	release := events[9]
	assert.Equal(t, "not sure", events[10].Error)
	assert.Positive(t, release.Until)
	assert.GreaterOrEqual(t, release.At, release.Until, "a belief ends no later than the lease was last seen valid")
	assert.EqualValues(t, 1, release.Fence)
	assert.True(t, events[6].OK)
	assert.EqualValues(t, 1, events[6].Value)
}

// Or the judge would see a holder, if only for a moment.
func TestALeaseThatIsNeverValidIsNotBelievedInForAMoment(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	b.fake.valid.Store(false)
	h, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	_ = h.Release(t.Context())
	events := b.events()
	granted := events[slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == history.Granted })]
	release := events[slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == history.Release })]
	require.LessOrEqual(t, release.Until, granted.At)
}

func TestTheFencedCounterRefusesASmallerFenceAndTheOtherDoesNot(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	old, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	old.Read()
	b.fake.held <- struct{}{} // as if it had expired
	next, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	next.Read() // and has not written so far
	require.True(t, old.Write())
	_ = next.Release(t.Context())
	<-b.fake.held
	_ = old.Release(t.Context())
	var fenced, unfenced []bool
	for _, e := range b.events() {
		switch {
		case e.Kind == history.Written && e.Fenced:
			fenced = append(fenced, e.OK)
		case e.Kind == history.Written:
			unfenced = append(unfenced, e.OK)
		}
	}
	assert.Equal(t, []bool{false}, fenced)
	assert.Equal(t, []bool{true}, unfenced)
}

func TestALossIsNoticedWhetherItIsToldOrOnlySeen(t *testing.T) {
	for name, lose := range map[string]func(*fake){
		"told": func(f *fake) { close(f.lost) },
		"seen": func(f *fake) { f.valid.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			b, g := newBench(t), traffic.NewGuarded("lock")
			h, err := b.Acquire(t.Context(), g, subject.Want{})
			require.NoError(t, err)
			lose(b.fake)
			select {
			case <-h.Lost():
			case <-time.After(5 * time.Second):
				t.Fatal("the loss was not noticed")
			}
			_ = h.Release(t.Context())
			assert.Equal(t, []history.Kind{
				history.Start, history.Acquire, history.Granted, history.Lost, history.Release, history.Freed, history.End,
			}, kinds(b.events()))
		})
	}
}

func TestARefusalIsNotAFailure(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	<-b.fake.held
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, g, subject.Want{})
	require.ErrorIs(t, err, subject.ErrRefused)
	require.Equal(t, []history.Kind{history.Start, history.Acquire, history.Refused, history.End}, kinds(b.events()))
}

func TestAPanicOfTheSubjectIsRecordedAndEndsTheWork(t *testing.T) {
	for _, method := range []string{"Acquire", "Valid", "Release"} {
		t.Run(method, func(t *testing.T) {
			b, g := newBench(t), traffic.NewGuarded("lock")
			b.fake.broken = method
			b.Work(t.Context(), t.Context(), g, traffic.Pace{Wait: time.Second}, rand.New(rand.NewPCG(1, 0)))
			require.NotEmpty(t, b.log.Panics())
			what, stack, _ := strings.Cut(b.log.Panics()[0], "\n")
			assert.Contains(t, what, "out of "+method)
			top, _, _ := strings.Cut(stack, "\n")
			assert.Contains(t, top, "traffic_test", "the stack begins where it panicked")
			found := false
			for _, e := range b.events() {
				found = found || e.Kind == history.Note && e.Error != ""
			}
			assert.True(t, found)
		})
	}
}

func TestASubjectThatDoesNotHeedItsContextIsLeftBehind(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	b.SetGrace(10 * time.Millisecond)
	b.fake.stuck = make(chan struct{})
	defer close(b.fake.stuck)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, g, subject.Want{})
	require.ErrorContains(t, err, "did not return")
	events := b.events()
	require.Equal(t, []history.Kind{history.Start, history.Acquire, history.Failed, history.End}, kinds(events))
	require.True(t, events[2].Left)
}

func TestAnActorWhoseClientIsReplacedGoesOnWithTheNewOne(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	old, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	next := newFake()
	next.fence.Store(7)
	require.Same(t, b.fake, b.Replace(next))
	h, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	_ = old.Release(t.Context())
	_ = h.Release(t.Context())
	var fences []uint64
	for _, e := range b.events() {
		if e.Kind == history.Granted {
			fences = append(fences, e.Fence)
		}
	}
	assert.Equal(t, []uint64{1, 8}, fences)
}

func TestWorkersLoseNoUpdateUnderALockThatHolds(t *testing.T) {
	b, g := newBench(t), traffic.NewGuarded("lock")
	stop, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 4 {
		go func() {
			b.Work(t.Context(), stop, g, traffic.Pace{Wait: time.Second, Pause: time.Millisecond}, rand.New(rand.NewPCG(1, 0)))
			done <- struct{}{}
		}()
	}
	for granted, changed := b.log.Granted(); granted < 40; granted, changed = b.log.Granted() {
		<-changed
	}
	cancel()
	for range 4 {
		<-done
	}
	var writes, last int64
	for _, e := range b.events() {
		if e.Kind == history.Written && !e.Fenced {
			require.True(t, e.OK)
			writes, last = writes+1, e.Value
		}
	}
	assert.Equal(t, writes, last)
}
