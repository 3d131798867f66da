package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// thisProcess is the default of Config.Owner.
func thisProcess(t *testing.T) string {
	host, err := os.Hostname()
	require.NoError(t, err)
	return fmt.Sprint(host, "/", os.Getpid())
}

// holderOf is the Holder in the error of a refused call.
func holderOf(t *testing.T, err error) redlock.Holder {
	t.Helper()
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round)
	h, ok := round.Holder()
	require.True(t, ok, "%v", err)
	return h
}

func TestARefusalSaysWhoHoldsTheLock(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		ctx := soon(t)
		a := open(t, f, func(cfg *redlock.Config) { cfg.Owner = "web-3/4711" })
		b := open(t, f)
		l, err := a.Mutex("x").WithOwner("nightly-report").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Extend(ctx))

		_, err = b.Mutex("x").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.Regexp(t, `held by web-3/4711 \(nightly-report\) for (9\.\d|10)s more`, err.Error())
		h := holderOf(t, err)
		require.Equal(t, "web-3/4711", h.Owner)
		require.Equal(t, "nightly-report", h.Label)
		require.Equal(t, l.Token()[:16], h.Token)
		require.Greater(t, h.Remaining, 5*time.Second)
		require.LessOrEqual(t, h.Remaining, 10*time.Second)
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), h.String(), fmt.Sprintf("%+v", h)} {
			require.NotContains(t, text, l.Token()[:32], "with it, anybody could release the lock")
		}

		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err = b.Mutex("x").Acquire(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "nightly-report", holderOf(t, err).Label)

		state, err := b.Inspect(ctx, "x")
		require.NoError(t, err)
		held, ok := state.Holder()
		require.True(t, ok)
		require.Equal(t, "web-3/4711 (nightly-report)", held.String())
		require.Equal(t, state.Remaining, held.Remaining)
		for _, n := range state.Nodes {
			if held, ok := n.Holder(); ok {
				require.Equal(t, "nightly-report", held.Label)
			}
		}

		require.NoError(t, l.Release(ctx))
		clears(t, f, "x")
		state, err = b.Inspect(ctx, "x")
		require.NoError(t, err)
		_, ok = state.Holder()
		require.False(t, ok)
		l, err = b.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		_, err = a.Mutex("x").TryAcquire(ctx)
		require.Equal(t, redlock.Holder{Owner: thisProcess(t), Token: l.Token()[:16]}, func() redlock.Holder {
			h := holderOf(t, err)
			h.Remaining = 0
			return h
		}(), "the default is this host and process")
	})
}

// Whatever bytes an owner has, they come back as they were, and do no harm on the way: not on the nodes, where other
// programs split the value at spaces, and not in an error or on a terminal.
func TestAnOwnerMayHaveAnyBytes(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	texts := []string{"with spaces and: colons", "%41 50% %", "línea \n\x1b[31mred\r", "\xff\x00", "10.0.0.1:8080", strings.Repeat("ü", 128), "next:", ":"}
	for i, text := range texts {
		a := open(t, f, func(cfg *redlock.Config) { cfg.Owner = text })
		b := open(t, f)
		name := fmt.Sprint("x", i)
		l, err := a.Mutex(name).WithOwner(text).Acquire(ctx)
		require.NoError(t, err, "%q", text)
		require.NotRegexp(t, `[^\x21-\x7e]`, l.Token(), "%q", text)
		require.NoError(t, l.Extend(ctx))
		_, err = b.Mutex(name).TryAcquire(ctx)
		h := holderOf(t, err)
		require.Equal(t, []string{text, text}, []string{h.Owner, h.Label})
		for _, said := range []string{h.String(), err.Error()} {
			require.NotRegexp(t, `[\x00-\x1f]`, said)
			require.NotContains(t, said, "\xff")
		}
		require.NoError(t, l.Release(ctx))
		require.NoError(t, a.Close())
	}
	a := open(t, f)
	_, err := a.Mutex("x").WithOwner(strings.Repeat("x", 257)).Acquire(ctx)
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "WithOwner")
	_, err = redlock.New(redlock.Config{Nodes: redlock.Nodes("localhost:1"), Owner: strings.Repeat("x", 257)})
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "Owner")
}

// What another program wrote is no owner, whatever it looks like.
func TestAForeignKeyHasNoOwner(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	c := open(t, f)
	for i, value := range []string{"another library's", "0123:45678901:web-3/4711:x", strings.Repeat("g", 32) + ":1:web-3:x", "e"} {
		name := fmt.Sprint("x", i)
		for _, n := range f.Nodes() {
			tell(t, n, "SET", name, value, "PX", 60_000)
		}
		_, err := c.Mutex(name).TryAcquire(ctx)
		h := holderOf(t, err)
		require.Empty(t, h.Owner+h.Label)
		require.Equal(t, value[:min(16, len(value))], h.Token)
		require.ErrorContains(t, err, "held by "+h.String()+" (not a lock of this library) for ")
	}
	for _, n := range f.Nodes() {
		tell(t, n, "HSET", "hash", "no", "lock")
	}
	_, err := c.Mutex("hash").TryAcquire(ctx)
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round)
	_, ok := round.Holder()
	require.False(t, ok)
	require.False(t, errors.Is(err, redlock.ErrNoQuorum))
}

// More milliseconds than a Duration has room for are as many as it has.
func TestAForeignKeyMayLastForAThousandYears(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	tell(t, f.Nodes()[0], "SET", "x", "another library's", "PX", int64(1000*365*24)*3_600_000)
	_, err := open(t, f).Mutex("x").TryAcquire(soon(t))
	require.Greater(t, holderOf(t, err).Remaining, 200*365*24*time.Hour)
}

func TestTheHolderIsTheOneThatMostNodesName(t *testing.T) {
	said := func(denials ...*redlock.Denial) *redlock.RoundError {
		e := &redlock.RoundError{Err: &multierror.Error{}}
		for _, d := range denials {
			e.Err.Errors = append(e.Err.Errors, &redlock.NodeError{Node: "node", Err: d})
		}
		e.Err.Errors = append(e.Err.Errors, &redlock.NodeError{Node: "node", Err: errors.New("it is away")})
		return e
	}
	one, two := &redlock.Denial{Owner: "one", Left: 90 * time.Second}, &redlock.Denial{Owner: "two", Left: 60 * time.Second}
	ever := &redlock.Denial{Owner: "ever", Left: -1}
	reserved := &redlock.Denial{Reason: redlock.ReasonReserved, Left: time.Hour}
	for _, test := range []struct {
		said *redlock.RoundError
		want redlock.Holder
	}{
		{said(one, two, &redlock.Denial{Owner: "two", Left: 70 * time.Second}), redlock.Holder{Token: "two", Remaining: 70 * time.Second}},
		{said(two, one), redlock.Holder{Token: "one", Remaining: 90 * time.Second}},
		{said(two, ever, one), redlock.Holder{Token: "ever", Remaining: -1}},
		{said(reserved, two, reserved), redlock.Holder{Token: "two", Remaining: 60 * time.Second}},
	} {
		h, ok := test.said.Holder()
		require.True(t, ok)
		require.Equal(t, test.want, h)
	}
	for _, none := range []*redlock.RoundError{{}, said(), said(reserved), said(&redlock.Denial{Left: time.Second})} {
		_, ok := none.Holder()
		require.False(t, ok)
	}
}

func TestLeaseFromIsTheInnermostLease(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3}), soon(t)
	c := open(t, f)
	_, ok := redlock.LeaseFrom(ctx)
	require.False(t, ok)
	require.NoError(t, c.Mutex("a").Do(ctx, func(ctx context.Context, a *redlock.Lease) error {
		l, ok := redlock.LeaseFrom(ctx)
		require.True(t, ok)
		require.Same(t, a, l)
		inner, err := c.Mutex("b").Acquire(ctx)
		require.NoError(t, err)
		l, _ = redlock.LeaseFrom(ctx)
		require.Same(t, a, l, "ctx was not changed")
		l, _ = redlock.LeaseFrom(inner.With(ctx))
		require.Same(t, inner, l)
		l, _ = redlock.LeaseFrom(inner.Context())
		require.Same(t, inner, l)
		return inner.Release(ctx)
	}))
	guarded := redlock.Guard(func(name string) redlock.Lock { return c.Mutex(name) }, func(ctx context.Context, name string) error {
		l, ok := redlock.LeaseFrom(ctx)
		require.True(t, ok)
		require.Equal(t, []string{name}, l.Names())
		return nil
	}, redlock.Wait)
	require.NoError(t, guarded(ctx, "c"))
}

// W2: A waiter tells by the digits alone whether the owner's release sends a message, whatever letters the label has. A
// release by a client that may publish keeps the waiter's place even if the publication fails just then.
func TestCapitalLettersInALabelAreNoSign(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	a, b := open(t, f), open(t, f, redlock.LostPoll(time.Hour))
	for i := range 3 {
		l, err := a.Mutex("x").WithOwner("NIGHTLY").Acquire(ctx)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			next, err := b.Mutex("x").Acquire(ctx)
			if err == nil {
				err = next.Release(ctx)
			}
			got <- err
		}()
		require.Eventually(t, func() bool { return redlock.Waiters(b) == 1 }, 10*time.Second, time.Millisecond)
		queued := func() bool {
			for _, n := range f.Nodes() {
				if members, _ := tell(t, n, "ZRANGE", "redlock:wait:x", 0, -1).([]any); len(members) == 1 {
					return true
				}
			}
			return false
		}
		require.Eventually(t, queued, 10*time.Second, time.Millisecond)
		require.NoError(t, l.Release(ctx))
		require.NoError(t, <-got, "round %d: woken by the message alone", i)
	}
}

func startNodes(t *testing.T, nodes int) *fleet.Fleet {
	return fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes})
}

// SECURITY.md: An owner token is a secret. Whoever logs or prints what the library tells does not show it.
func TestWhatTheLibraryTellsShowsNoOwnerTokenInLogs(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	ctx := soon(t)
	var told redlock.LeaseInfo
	c := open(t, f, func(cfg *redlock.Config) {
		cfg.Owner = "web-1"
		cfg.Hooks.Released = func(l redlock.LeaseInfo, _ error) { told = l }
	})
	lock, err := c.Mutex("a").WithOwner("report").Acquire(ctx)
	require.NoError(t, err)
	reader, err := c.RWMutex("b").Reader().Acquire(ctx)
	require.NoError(t, err)
	ofLock, err := c.Inspect(ctx, "a")
	require.NoError(t, err)
	ofReader, err := c.Inspect(ctx, "b")
	require.NoError(t, err)
	require.Len(t, ofReader.Sharers, 1)
	at := slices.IndexFunc(ofLock.Nodes, func(n redlock.NodeState) bool { return n.Held })
	_, refused := c.RWMutex("b").Writer().TryAcquire(ctx)
	require.NoError(t, lock.Release(ctx))
	require.NoError(t, c.Close()) // the hook has been called
	require.Equal(t, lock.Token(), told.Token)

	for want, of := range map[string]any{
		`lease of "a", fencing token ` + strconv.FormatUint(lock.Fence(), 10): told,
		`"a" is held by web-1 (report)`:                                       *ofLock,
		`"b" is held by web-1`:                                                ofReader,
		"web-1":                                                               ofReader.Sharers[0],
		"held by web-1 (report)":                                              ofLock.Nodes[at],
		"held by readers for":                                                 refused,
	} {
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("seen", "of", of)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("seen", "of", of)
		shown := fmt.Sprintf("%v %+v %v %s", of, of, []any{of}, log.String())
		require.Contains(t, shown, want)
		for _, token := range []string{lock.Token(), reader.Token()} {
			require.NotContains(t, shown, token[:20], "%T", of)
		}
	}
}
