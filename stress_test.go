package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

var stressFor = flag.Duration("stress", 3*time.Second, "how long TestStress runs")

// TestStress does everything at once on real servers. Clients are closed in the middle of their work, names are
// contended, every kind of lock and hook is used, and several goroutines call the methods of one lease. Meanwhile
// connections break, and servers stop, restart empty and forget their scripts. It is for the race detector, and for the
// count of leaked goroutines. Two leases must never be valid at once, and fencing tokens must never fall. make
// stress-close runs it for ten minutes.
func TestStress(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	operator := openFresh(t, f, stressed)
	require.NoError(t, enroll(t, operator))
	s := &stress{fleet: f, byName: map[string]map[*redlock.Lease]bool{}, highest: map[string]uint64{}}
	ctx, cancel := context.WithTimeout(t.Context(), *stressFor)
	defer cancel()
	var lives sync.WaitGroup
	for id := range 4 {
		lives.Go(func() {
			r := rand.New(rand.NewPCG(uint64(id), 1))
			for ctx.Err() == nil {
				s.live(ctx, r)
			}
		})
	}
	for i, hurt := range []func(context.Context, *rand.Rand){s.flap, s.hurt} {
		lives.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for ctx.Err() == nil {
				hurt(ctx, r)
			}
		})
	}
	lives.Wait()
	require.NoError(t, f.Heal())
	t.Logf("%d clients, %d leases, %d hooks", s.clients.Load(), s.granted.Load(), s.hooks.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.violations)
	require.Positive(t, s.granted.Load())

	// The faults are over: every name can be acquired again.
	c := openFresh(t, f, stressed)
	for name := range s.highest {
		require.NoError(t, c.Mutex(name).Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
	}
}

func stressed(cfg *redlock.Config) {
	cfg.TTL, cfg.MaxTTL = time.Second, time.Second
	cfg.NodeTimeout, cfg.MaxClockSkew = 100*time.Millisecond, 50*time.Millisecond
}

type stress struct {
	fleet                   *fleet.Fleet
	clients, granted, hooks atomic.Int64

	mu         sync.Mutex // guards the rest; of the library, only Valid and Fence are called under it
	byName     map[string]map[*redlock.Lease]bool
	highest    map[string]uint64
	violations []string
}

// live runs one client, which is closed while its workers are at work.
func (s *stress) live(ctx context.Context, r *rand.Rand) {
	cfg := redlock.Config{Nodes: redlock.Nodes(s.fleet.URLs()...), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	stressed(&cfg)
	count := func() { s.hooks.Add(1) }
	cfg.Hooks = redlock.Hooks{
		Acquired:     func(redlock.LeaseInfo, time.Duration, int) { count() },
		Refused:      func(_ []string, err error) { _ = err.Error(); count() },
		Extended:     func(redlock.LeaseInfo, time.Duration, time.Duration) { count() },
		ExtendFailed: func(_ redlock.LeaseInfo, err error) { _ = err.Error(); count() },
		Released:     func(redlock.LeaseInfo, error) { count() },
		Lost:         func(_ redlock.LeaseInfo, err error) { _ = err.Error(); count() },
		NodeUp:       func(string) { count() },
		NodeDown:     func(_ string, err error) { _ = err.Error(); count() },
		Traced:       func(_ context.Context, op redlock.Operation) { _ = fmt.Sprint(op); count() },
	}
	c, err := redlock.New(cfg)
	if err != nil {
		s.violate("New: %v", err)
		return
	}
	s.clients.Add(1)
	var workers sync.WaitGroup
	for range 5 {
		seed := r.Uint64()
		workers.Go(func() {
			r := rand.New(rand.NewPCG(seed, 0))
			for open := true; open; {
				if r.IntN(3) == 0 {
					open = s.shared(c, r)
				} else {
					open = s.once(c, r)
				}
			}
		})
	}
	workers.Go(func() {
		for !errors.Is(func() error { _, err := c.Inspect(ctx, "a"); return err }(), redlock.ErrClosed) && ctx.Err() == nil {
			c.Status(ctx)
		}
	})
	timer := time.NewTimer(time.Duration(r.IntN(3000)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := c.Close(); err != nil {
		s.violate("Close: %v", err)
	}
	workers.Wait()
}

// once takes one lock, in any of the possible ways, and reports whether the client is still open.
func (s *stress) once(c *redlock.Client, r *rand.Rand) (open bool) {
	names := [][]string{{"a"}, {"b"}, {"a", "b"}, {"c", "a"}, {fmt.Sprint("many/", r.IntN(500))}}[r.IntN(5)]
	lock := c.Mutex(names[0], names[1:]...)
	switch r.IntN(6) {
	case 0:
		lock = lock.WithTTL(time.Duration(100+r.IntN(900)) * time.Millisecond)
	case 1:
		lock = lock.WithoutRenewal()
	case 2:
		lock = lock.WithMaxHold(time.Duration(1+r.IntN(500)) * time.Millisecond)
	}
	acquire := lock.Acquire
	if r.IntN(3) == 0 {
		acquire = lock.TryAcquire
	}
	floor := s.floor(names)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(400))*time.Millisecond)
	defer cancel()
	l, err := acquire(ctx)
	if err != nil {
		if errors.Is(err, redlock.ErrInvalid) {
			s.violate("%v", err)
		}
		return !errors.Is(err, redlock.ErrClosed)
	}
	s.grant(l, floor)
	if r.IntN(3) == 0 {
		if again, err := lock.Reentrant().TryAcquire(l.With(ctx)); err == nil {
			defer again.Release(ctx)
		}
	}
	time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
	if r.IntN(4) == 0 {
		_ = l.Extend(ctx)
	}
	s.end(l)
	if r.IntN(30) > 0 { // else it is dropped
		_ = l.Release(ctx)
	}
	return true
}

// shared takes a lock of another kind, which several goroutines then use at once. It reports whether the client is still
// open.
func (s *stress) shared(c *redlock.Client, r *rand.Rand) (open bool) {
	lock := []func() redlock.Lock{
		func() redlock.Lock { return c.RWMutex("rw").Reader() },
		func() redlock.Lock { return c.RWMutex("rw").Writer() },
		func() redlock.Lock { return c.RWMutex("rw").Writer() },
		func() redlock.Lock { return c.Semaphore("permits", 3) },
		func() redlock.Lock { return c.Mutex("fair").Fair() },
		func() redlock.Lock { return c.Mutex("several", "fair") },
		func() redlock.Lock {
			return c.Mutex("kept").WithMinHold(time.Duration(1+r.IntN(20)) * time.Millisecond)
		},
	}[r.IntN(7)]()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(400))*time.Millisecond)
	defer cancel()
	var users sync.WaitGroup
	defer users.Wait()
	err := lock.Do(ctx, func(ctx context.Context, l *redlock.Lease) error {
		s.granted.Add(1)
		uses := []func(){
			func() { _ = l.Extend(ctx) },
			func() { _ = l.Release(ctx) },
			func() { _ = l.Release(context.Background()) },
			func() {
				if reader, err := l.Downgrade(ctx); err == nil {
					_ = reader.Extend(ctx)
					_ = reader.Release(ctx)
				}
			},
			func() {
				if ticket, err := l.Detach(ctx); err == nil {
					if taken, err := c.Adopt(ctx, ticket); err == nil {
						_ = taken.Release(ctx)
					}
				}
			},
			func() {
				if again, err := lock.Reentrant().TryAcquire(ctx); err == nil {
					_ = again.Release(ctx)
				}
			},
			func() {
				select {
				case <-l.Wanted():
				case <-l.Context().Done():
				case <-ctx.Done():
				}
			},
			func() {
				under, end := context.WithCancel(l.With(context.Background()))
				defer end()
				_, _ = l.Names(), context.Cause(under)
				_, _ = l.Valid() && l.Remaining() > 0, c.Stats()
			},
			func() { _, _ = c.Inspect(ctx, l.Names()[0]) },
			func() { _ = c.ReleaseToken(ctx, l.Names()[0], l.Token()) },
			func() { _ = c.Close() },
		}
		r.Shuffle(len(uses)-1, func(i, j int) { uses[i], uses[j] = uses[j], uses[i] })
		few := uses[:1+r.IntN(6)]
		if r.IntN(50) == 0 {
			few = append(few, uses[len(uses)-1])
		}
		for _, use := range few {
			users.Go(use)
		}
		if r.IntN(2) == 0 {
			users.Wait()
		}
		return nil
	})
	if errors.Is(err, redlock.ErrInvalid) {
		s.violate("%v", err)
	}
	return !errors.Is(err, redlock.ErrClosed)
}

// flap breaks connections of all kinds, at any moment.
func (s *stress) flap(ctx context.Context, r *rand.Rand) {
	n := s.fleet.Nodes()[r.IntN(3)]
	tellQuietly(ctx, n, "CLIENT", "KILL", "TYPE", []string{"pubsub", "pubsub", "normal"}[r.IntN(3)])
	time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
}

// hurt harms one server for a while.
func (s *stress) hurt(ctx context.Context, r *rand.Rand) {
	n := s.fleet.Nodes()[r.IntN(3)]
	for what, begin := range []func() error{n.Cut, n.CutReplies, n.Pause, func() error { return n.Delay(20 * time.Millisecond) }} {
		if r.IntN(8) == what {
			_ = begin()
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			_, _ = n.Resume(), n.Heal()
		}
	}
	switch r.IntN(12) {
	case 0:
		tellQuietly(ctx, n, "SCRIPT", "FLUSH")
	case 1:
		tellQuietly(ctx, n, "DEL", "redlock:node")
	case 2:
		if n.Kill() == nil {
			_ = n.Start(context.Background(), fleet.Empty)
		}
	}
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
}

func tellQuietly(ctx context.Context, n *fleet.Node, command string, args ...any) {
	if conn, err := n.DialDirect(ctx, 2*time.Second); err == nil {
		_, _ = conn.Do(command, args...)
		conn.Close()
	}
}

func (s *stress) violate(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

func (s *stress) floor(names []string) (floor uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		floor = max(floor, s.highest[name])
	}
	return floor
}

func (s *stress) grant(l *redlock.Lease, floor uint64) {
	s.granted.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Fence() <= floor {
		s.violations = append(s.violations, fmt.Sprintf("%q: fencing token %d after %d", l.Names(), l.Fence(), floor))
	}
	for _, name := range l.Names() {
		if s.byName[name] == nil {
			s.byName[name] = map[*redlock.Lease]bool{}
		}
		for other := range s.byName[name] {
			if other.Valid() && l.Valid() {
				s.violations = append(s.violations, fmt.Sprintf("%s: two valid leases, fencing tokens %d and %d", name, other.Fence(), l.Fence()))
			}
		}
		s.byName[name][l] = true
		s.highest[name] = max(s.highest[name], l.Fence())
	}
}

func (s *stress) end(l *redlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range l.Names() {
		delete(s.byName[name], l)
	}
}
