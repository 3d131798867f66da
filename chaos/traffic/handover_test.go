package traffic_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A family is a fake lock that is more than a mutex.
type family struct {
	*fake
	wants   []subject.Want
	refuses bool // it hands nothing over
}

func (f *family) AcquireAs(ctx context.Context, _ string, w subject.Want) (subject.Lease, error) {
	f.wants = append(f.wants, w)
	return f.take(ctx)
}

func (f *family) take(ctx context.Context) (subject.Lease, error) {
	lease, err := f.Acquire(ctx, "")
	if err != nil {
		return nil, err
	}
	return familyLease{lease, f}, nil
}

func (f *family) Adopt(ctx context.Context, ticket string) (subject.Lease, error) {
	if ticket != "ticket" {
		return nil, errors.New("no ticket")
	}
	return f.take(ctx)
}

type familyLease struct {
	subject.Lease
	f *family
}

func (l familyLease) Downgrade(ctx context.Context) (subject.Lease, error) {
	_ = l.Release(ctx)
	return l.f.take(ctx)
}

func (l familyLease) Detach(ctx context.Context) (string, error) {
	if l.f.refuses {
		return "", errors.New("not now")
	}
	_ = l.Release(ctx)
	return "ticket", nil
}

// A familyBench is a log with two actors.
type familyBench struct {
	*bench
	family *family
	peer   *traffic.Actor
}

func newFamilyBench(t *testing.T, run history.Run) *familyBench {
	b := &familyBench{bench: &bench{t: t}, family: &family{fake: newFake()}}
	run.Nodes, run.TTL = []string{"node-1"}, int64(time.Second)
	b.log = traffic.NewLog(&b.text, run)
	b.Actor = traffic.NewActor(1, b.family, b.log)
	b.peer = traffic.NewActor(2, b.family, b.log)
	return b
}

func TestALockThatIsHandedOverIsRecordedAsTwoOps(t *testing.T) {
	b, g := newFamilyBench(t, history.Run{}), traffic.NewGuarded("lock")
	h, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	require.True(t, h.IsGiver())
	h, err = h.HandOver(t.Context(), b.peer)
	require.NoError(t, err)
	_ = h.Release(t.Context())
	events := b.events()
	require.Equal(t, []history.Kind{
		history.Start, history.Acquire, history.Granted, history.Release, history.Freed,
		history.Acquire, history.Granted, history.Release, history.Freed, history.End,
	}, kinds(events))
	assert.True(t, events[3].Handed)
	assert.EqualValues(t, 1, events[5].From)
	assert.Equal(t, 2, events[5].Client)
	assert.False(t, events[7].Handed)
}

func TestAHandOverThatFailsReleasesTheLock(t *testing.T) {
	b, g := newFamilyBench(t, history.Run{}), traffic.NewGuarded("lock")
	b.family.refuses = true
	h, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	_, err = h.HandOver(t.Context(), b.peer)
	require.ErrorContains(t, err, "not now")
	require.Len(t, b.fake().held, 1, "it is free")
	events := b.events()
	assert.Equal(t, "not now", events[len(events)-2].Error)
}

func (b *familyBench) fake() *fake { return b.family.fake }

func TestAWriterThatBecomesAReaderKeepsNoFencingTokenAndWritesNothing(t *testing.T) {
	b, g := newFamilyBench(t, history.Run{Lock: history.ReadWrite}), traffic.NewGuarded("lock")
	h, err := b.Acquire(t.Context(), g, subject.Want{})
	require.NoError(t, err)
	h, err = h.Downgrade(t.Context())
	require.NoError(t, err)
	h.Read()
	require.True(t, h.Write())
	_ = h.Release(t.Context())
	readers := 0
	for _, e := range b.events() {
		if e.Kind == history.Acquire && e.Role == history.Reader {
			readers++
			assert.EqualValues(t, 1, e.From)
		}
		assert.NotEqual(t, history.Write, e.Kind)
		if e.Kind == history.Read {
			assert.Zero(t, e.Fence)
		}
	}
	assert.Equal(t, 1, readers)
}

func TestWorkersWantWhatTheLockHas(t *testing.T) {
	for _, kind := range []subject.Kind{{}, {Lock: history.ReadWrite}, {Lock: history.Semaphore, Permits: 3}} {
		b, g := newFamilyBench(t, history.Run{Lock: kind.Lock, Permits: kind.Permits}), traffic.NewGuarded("lock")
		stop, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			pace := traffic.Pace{Wait: time.Second, Pause: time.Microsecond, Kind: kind, Peers: []*traffic.Actor{b.peer}}
			b.Work(t.Context(), stop, g, pace, rand.New(rand.NewPCG(1, 0)))
		}()
		for granted, changed := b.log.Granted(); granted < 100; granted, changed = b.log.Granted() {
			<-changed
		}
		cancel()
		<-done
		b.events() // a valid history
		for _, w := range []subject.Want{{}, {Reader: true}, {Permits: 1}, {Permits: 3}} {
			wanted := w.Permits > 0 == (kind.Permits > 0) && (!w.Reader || kind.Lock == history.ReadWrite)
			assert.Equal(t, wanted, slices.Contains(b.family.wants, w), "%v wants %v", kind, w)
		}
	}
}

// An arriver says that each call has its place.
type arriver struct {
	*fake
	queued subject.QueuedFunc
}

func (a arriver) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	defer a.queued(ctx, time.Now())
	return a.fake.Acquire(ctx, name)
}

func TestAPlaceInTheOrderOfArrivalIsThatOfTheCall(t *testing.T) {
	b := &bench{t: t, fake: newFake()}
	b.log = traffic.NewLog(&b.text, history.Run{Nodes: []string{"node-1"}, TTL: int64(time.Second), Lock: history.Fair})
	b.Actor = traffic.NewActor(1, arriver{b.fake, b.log.Queued}, b.log)
	b.log.Queued(t.Context(), time.Now()) // of no call of an actor, as the first locks are
	h, err := b.Acquire(t.Context(), traffic.NewGuarded("lock"), subject.Want{})
	require.NoError(t, err)
	_ = h.Release(t.Context())
	events := b.events()
	require.Equal(t, history.Queued, events[2].Kind)
	assert.EqualValues(t, 1, events[2].Op)
	assert.GreaterOrEqual(t, events[2].Since, events[1].At)
}

func TestTheObserverSeesEveryOwnerThatIsAlive(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			f := fleettest.Start(t, kind, fleet.Options{Nodes: 1})
			node := f.Nodes()[0]
			conn, err := node.DialDirect(t.Context(), time.Second)
			require.NoError(t, err)
			defer conn.Close()
			now, err := redis.Int64s(conn.Do("TIME"))
			require.NoError(t, err)
			later, before := now[0]*1e6+60e6, now[0]*1e6-1
			_, err = conn.Do("ZADD", "shared", later, "permit 0,1/3 a", later, "permit 2/3 b", before, "permit 2/3 dead")
			require.NoError(t, err)
			_, err = conn.Do("SET", "alone", "the owner")
			require.NoError(t, err)

			var text bytes.Buffer
			log := traffic.NewLog(&text, history.Run{Nodes: []string{node.Name()}, TTL: 1})
			ctx, stop := context.WithCancel(t.Context())
			dial := func(ctx context.Context, _ string) (redis.Conn, error) {
				conn, err := node.DialDirect(ctx, time.Second)
				return &looks{conn, 0, stop}, err
			}
			traffic.Observe(ctx, log, []string{node.Name()}, []string{"shared", "alone"}, dial)
			require.NoError(t, log.Close())
			events, err := history.ReadAll(&text)
			require.NoError(t, err)
			assert.Equal(t, []string{"a", "b"}, events[1].Owners)
			assert.Equal(t, "the owner", events[2].Token)
		})
	}
}

// looks ends the watch at the second look, when what the first one saw is recorded.
type looks struct {
	redis.Conn
	sent int
	stop func()
}

func (l *looks) Send(command string, args ...any) error {
	if l.sent++; l.sent == 3 { // there are two names
		l.stop()
	}
	return l.Conn.Send(command, args...)
}
