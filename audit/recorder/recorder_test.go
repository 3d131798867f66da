package recorder_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
	"github.com/quorumlock/redlock/audit/recorder"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorded client is one process, with its journal.
type recorded struct {
	*redlock.Client
	*recorder.Recorder
	journal *bytes.Buffer
}

func open(t *testing.T, nodes *redlocktest.Nodes, process string, with ...func(*redlock.Config)) recorded {
	t.Helper()
	var journal bytes.Buffer
	r := recorder.New(&journal, process)
	cfg := redlock.Config{Nodes: nodes.Nodes()}
	for _, w := range with {
		w(&cfg)
	}
	cfg.Hooks = r.Hooks(cfg.Hooks)
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	r.Watch(c)
	t.Cleanup(func() { _ = c.Close() })
	return recorded{c, r, &journal}
}

// judge closes the clients, so that all is recorded, and judges what they had.
func judge(t *testing.T, clients ...recorded) audit.Result {
	t.Helper()
	var journals []*audit.Journal
	for _, c := range clients {
		require.NoError(t, c.Client.Close())
		require.NoError(t, c.Recorder.Close())
		j, err := audit.Read("journal", bytes.NewReader(c.journal.Bytes()))
		require.NoError(t, err, c.journal.String())
		journals = append(journals, j)
	}
	return audit.Judge(audit.Options{ClockError: time.Nanosecond}, journals...) // in virtual time all have one clock
}

func (c recorded) events(t *testing.T) (events []audit.Event) {
	t.Helper()
	for line := range strings.Lines(c.journal.String()) {
		if line = strings.TrimSpace(line); line != "" {
			var e audit.Event
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			events = append(events, e)
		}
	}
	return events
}

func kinds(events []audit.Event) (kinds []audit.Kind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestAJournalHasWhenEachLeaseWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, redlocktest.Start(t, 3), "web-1:4711")
		began := time.Now()
		time.Sleep(time.Second)
		lease, err := c.Mutex("a", "b").WithTTL(6 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		acquired := time.Now()
		time.Sleep(3 * time.Second) // longer than a third of the TTL
		released := time.Now()
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, c.Client.Close())

		events := c.events(t)
		require.Equal(t, []audit.Kind{audit.Start, audit.Acquired, audit.Valid, audit.Released}, kinds(events))
		require.Equal(t, "web-1:4711", events[0].Process)
		got := events[1]
		require.Equal(t, []string{"a", "b"}, got.Names)
		require.Equal(t, lease.Fence(), got.Fence)
		require.Equal(t, int64(time.Second), got.Asked)
		require.True(t, got.AskedWall.Equal(began.Add(time.Second)))
		require.Equal(t, int64(acquired.Sub(began)), got.At)
		require.True(t, got.Wall.Equal(acquired))
		require.InDelta(t, 6*time.Second, *got.Left, float64(500*time.Millisecond))
		require.Equal(t, int64(released.Sub(began)), events[3].At)
		require.NotContains(t, c.journal.String(), lease.Token()[:32], "it is a secret")
		for _, e := range events[2:] {
			require.Equal(t, got.Lease, e.Lease)
		}
	})
}

func TestLocksOfEveryKindAreConsistent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		a, b := open(t, nodes, "a"), open(t, nodes, "b")
		for i := range 3 { // a lock may have its next holder before its release has returned
			nodes.Delay(i, time.Duration(5+20*i)*time.Millisecond)
		}
		ctx := t.Context()
		done := make(chan error, 100)
		for i := range 20 {
			c := []recorded{a, b}[i%2]
			go func() {
				done <- errors.Join(
					c.Mutex("mutex").Do(ctx, func(context.Context, *redlock.Lease) error { time.Sleep(time.Second); return nil }),
					c.Mutex("fair").Fair().Do(ctx, func(context.Context, *redlock.Lease) error { time.Sleep(time.Second); return nil }),
					c.Semaphore("permits", 3).WithPermits(1+i%3).Do(ctx, func(context.Context, *redlock.Lease) error { time.Sleep(time.Second); return nil }),
					c.RWMutex("rw").Reader().Do(ctx, func(context.Context, *redlock.Lease) error { time.Sleep(time.Second); return nil }),
				)
			}()
			go func() {
				done <- c.RWMutex("rw").Writer().Do(ctx, func(_ context.Context, l *redlock.Lease) error {
					time.Sleep(time.Second)
					reader, err := l.Downgrade(ctx)
					if err != nil {
						return err
					}
					time.Sleep(20 * time.Second) // until it is renewed
					return reader.Release(ctx)
				})
			}()
		}
		for range 40 {
			require.NoError(t, <-done)
		}
		lease, err := a.Mutex("handed over").Acquire(ctx)
		require.NoError(t, err)
		ticket, err := lease.Detach(ctx)
		require.NoError(t, err)
		lease, err = b.Adopt(ctx, ticket)
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))

		r := judge(t, a, b)
		require.Equal(t, audit.Consistent, r.Verdict, "%+v %v", r.Violations, r.LeftOut)
		require.Equal(t, 5, r.Names)
		require.Equal(t, 20*4+20+2, r.Leases)
	})
}

// The holder relies on the lock until it is told.
func TestALockThatWasTakenAwayByForceIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		a, b, operator := open(t, nodes, "a"), open(t, nodes, "b"), open(t, nodes, "operator")
		_, err := a.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(11 * time.Second) // it has been renewed, and is on all nodes
		require.NoError(t, operator.ForceRelease(t.Context(), "x"))
		lease, err := b.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(15 * time.Second)
		require.NoError(t, lease.Release(t.Context()))
		r := judge(t, a, b)
		require.Equal(t, audit.Violated, r.Verdict)
		require.Equal(t, map[audit.ViolationKind]int{audit.Overlap: 1}, r.Counts)
		require.Len(t, r.Violations[0].Leases, 2)
		require.Contains(t, r.Violations[0].Leases[0].End, "lost: redlock: lease lost")
		require.Equal(t, "released", r.Violations[0].Leases[1].End)
	})
}

// A lease that expires is over for its process before another can have it, whatever its process says, and when.
func TestALeaseThatExpiresIsNoViolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		a, b := open(t, nodes, "a"), open(t, nodes, "b")
		lease, err := a.Mutex("x").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		_, err = b.Mutex("x").Acquire(t.Context()) // waits for the TTL
		require.NoError(t, err)
		require.ErrorIs(t, lease.Release(t.Context()), redlock.ErrLost)
		r := judge(t, a, b)
		require.Equal(t, audit.Consistent, r.Verdict, "%+v", r.Violations)
		require.Equal(t, []audit.Kind{audit.Start, audit.Acquired, audit.Lost}, kinds(a.events(t)))
	})
}

func TestWhatAClientDropsIsInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, block := true, make(chan struct{})
		c := open(t, redlocktest.Start(t, 1), "a", func(cfg *redlock.Config) {
			cfg.Hooks.Acquired = func(redlock.LeaseInfo, time.Duration, int) {
				if first {
					first = false
					<-block
				}
			}
		})
		for range 3000 { // two calls of hooks each, and 4096 can wait
			lease, err := c.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		close(block)
		r := judge(t, c)
		require.Equal(t, audit.Unsure, r.Verdict)
		require.Len(t, r.LeftOut, 1)
		require.Contains(t, r.LeftOut[0], "events that were not recorded, so that leases may be missing: ")
		require.Contains(t, kinds(c.events(t)), audit.Missed)
	})
}

// A process crashed as it wrote. Its next one appends to the same file.
func TestAJournalGoesOnAfterACrash(t *testing.T) {
	journal := bytes.NewBufferString(`{"kind":"start","by":"p","at":0,"wall":"2026-01-02T03:04:05Z","version":1,"process":"a"}` + "\n" + `{"kind":"acquired","lea`)
	require.NoError(t, recorder.New(journal, "").Err())
	j, err := audit.Read("journal", journal)
	require.NoError(t, err)
	require.Equal(t, 2, audit.Judge(audit.Options{}, j).Processes)
}

type full struct{ left int }

func (w *full) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

// The lock must not depend on the journal.
func TestAJournalThatCannotBeWrittenStopsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		r := recorder.New(&full{400}, "a")
		c, err := redlock.New(redlock.Config{Nodes: redlocktest.Start(t, 1).Nodes(),
			Hooks: r.Hooks(redlock.Hooks{
				Acquired: func(redlock.LeaseInfo, time.Duration, int) { told++ },
				Extended: func(redlock.LeaseInfo, time.Duration, time.Duration) { told++ },
				Released: func(redlock.LeaseInfo, error) { told++ },
				Lost:     func(redlock.LeaseInfo, error) { told++ },
			})})
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context, *redlock.Lease) error { return nil }))
		}
		_, err = c.Mutex("x").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, c.Close())
		require.EqualError(t, r.Err(), "no space left on device")
		require.Equal(t, 12, told, "the given hooks are called all the same")
	})
}
