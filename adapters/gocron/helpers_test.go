package redlockgocron_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	redlockgocron "github.com/quorumlock/redlock/adapters/gocron"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in virtual time, in which work takes no time. A fleet has three nodes.
func bubble(t *testing.T, test func(t *testing.T, nodes *redlocktest.Nodes)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.Start(t, 3)) })
}

func connectTo(t *testing.T, nodes *redlocktest.Nodes, change ...func(*redlock.Config)) *redlock.Client {
	cfg := redlock.Config{Nodes: nodes.Nodes()}
	for _, ch := range change {
		ch(&cfg)
	}
	client, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func newLocker(t *testing.T, client *redlock.Client, options ...redlockgocron.LockerOption) *redlockgocron.Locker {
	locker, err := redlockgocron.NewLocker(client, options...)
	require.NoError(t, err)
	return locker
}

// schedule makes a scheduler that is shut down when the test ends.
func schedule(t *testing.T, options ...gocron.SchedulerOption) gocron.Scheduler {
	s, err := gocron.NewScheduler(options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
	return s
}

// at has the job begin at that time from now.
func at(d time.Duration) gocron.JobOption {
	return gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(d)))
}

// A board counts the runs of a job, by tick.
type board struct {
	mu       sync.Mutex
	begun    time.Time
	interval time.Duration
	ticks    map[int]int
}

func newBoard(interval time.Duration) *board {
	return &board{begun: time.Now(), interval: interval, ticks: map[int]int{}}
}

func (b *board) run() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ticks[int(time.Since(b.begun)/b.interval)]++
}

// check reports the ticks, from the second on, that did not run exactly once.
func (b *board) check(ticks int) (wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := 1; i < ticks; i++ {
		if b.ticks[i] != 1 {
			wrong = append(wrong, fmt.Sprintf("tick %d ran %d times", i, b.ticks[i]))
		}
	}
	return wrong
}

// A clock that can be ahead of the timers, as after a suspend of the machine.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() redlock.Instant {
	return redlock.SystemClock().Now() + redlock.Instant(c.ahead.Load())
}
