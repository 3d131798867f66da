package redlockgocron_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	redlockgocron "github.com/quorumlock/redlock/adapters/gocron"
	"github.com/quorumlock/redlock/redlocktest"
)

// The schedule of cron has different intervals: the shortest counts, so that no tick is skipped.
func TestTheMinimumHoldIsHalfOfTheShortestInterval(t *testing.T) {
	for name, c := range map[string]struct {
		when    gocron.JobDefinition
		start   gocron.StartAtOption
		options []redlockgocron.LockerOption
		hold    time.Duration
	}{
		"cron, and at once": {when: gocron.CronJob("10,40 * * * * *", true), start: gocron.WithStartImmediately(), hold: 15 * time.Second},
		"duration":          {when: gocron.DurationJob(10 * time.Second), hold: 5 * time.Second},
		"random duration":   {when: gocron.DurationRandomJob(8*time.Second, time.Minute), hold: 4 * time.Second},
		"cron":              {when: gocron.CronJob("0,1,30 * * * *", false), hold: 28702 * time.Millisecond}, // half a minute is not allowed
		"cron, seconds":     {when: gocron.CronJob("0,12,30 * * * * *", true), hold: 6 * time.Second},
		"daily": {when: gocron.DailyJob(1, gocron.NewAtTimes(gocron.NewAtTime(1, 0, 0), gocron.NewAtTime(1, 0, 14))),
			hold: 7 * time.Second},
		"once": {when: gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(time.Now().AddDate(30, 0, 0))), hold: redlockgocron.DefaultSpread},
		"MinHold": {when: gocron.DurationJob(10 * time.Second), hold: 3 * time.Second,
			options: []redlockgocron.LockerOption{redlockgocron.MinHold(3 * time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
				client, s := connectTo(t, nodes), schedule(t)
				time.Sleep(8 * time.Second) // the day began with a tick of these
				ran := make(chan time.Time, 1000)
				var options []gocron.JobOption
				if c.start != nil {
					options = append(options, gocron.WithStartAt(c.start))
				}
				job, err := newLocker(t, client, c.options...).NewJob(s, c.when, "job",
					func(context.Context, *redlock.Lease) error { ran <- time.Now(); return nil }, options...)
				require.NoError(t, err)
				s.Start()
				synctest.Wait()
				if c.start == nil {
					require.NoError(t, job.RunNow())
				}
				begun := <-ran
				lease, err := client.Mutex("gocron/job").Acquire(t.Context())
				require.NoError(t, err)
				require.InDelta(t, c.hold.Seconds(), time.Since(begun).Seconds(), 0.02*c.hold.Seconds()+0.1)
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}

// A job that loses its lock is stopped before another can have it, and its error says so.
func TestTheContextOfAJobEndsWithItsLease(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(t *testing.T, nodes *redlocktest.Nodes, client *redlock.Client)
		why  error
	}{
		"taken away": {func(t *testing.T, nodes *redlocktest.Nodes, client *redlock.Client) {
			require.NoError(t, client.ForceRelease(t.Context(), "gocron/job"))
		}, redlock.ErrLost},
		"a majority dies": {func(t *testing.T, nodes *redlocktest.Nodes, _ *redlock.Client) { nodes.Kill(0); nodes.Kill(1) }, redlock.ErrLost},
		"the client is closed": {func(t *testing.T, _ *redlocktest.Nodes, client *redlock.Client) { require.NoError(t, client.Close()) },
			redlock.ErrClosed},
	} {
		for returns, own := range map[string]error{"nil": nil, "an error": errors.New("no paper")} {
			t.Run(name+", and it returns "+returns, func(t *testing.T) {
				bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
					client, s := connectTo(t, nodes), schedule(t)
					running, failed := make(chan *redlock.Lease, 1), make(chan error, 1)
					_, err := newLocker(t, client).NewJob(s, gocron.DurationJob(time.Hour), "job",
						func(ctx context.Context, lease *redlock.Lease) error {
							running <- lease
							<-ctx.Done()
							require.ErrorIs(t, context.Cause(ctx), c.why)
							return own
						}, gocron.WithStartAt(gocron.WithStartImmediately()),
						gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
					require.NoError(t, err)
					s.Start()
					lease := <-running
					require.True(t, lease.Valid())
					c.lose(t, nodes, client)
					err = <-failed
					require.ErrorIs(t, err, c.why)
					if own != nil {
						require.ErrorIs(t, err, own)
					}
				})
			})
		}
	}
}

// gocron tells nobody that a lock is refused, unless the job has an AfterLockError. Such a job would never run.
func TestANameThatNoLockCanHaveIsRefusedWhenTheJobIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		s := schedule(t)
		locker := newLocker(t, connectTo(t, nodes))
		never := func(context.Context, *redlock.Lease) error { return nil }
		_, err := locker.NewJob(s, gocron.DurationJob(time.Minute), strings.Repeat("x", 1024), never)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "more than the 1024 allowed")
		require.Empty(t, s.Jobs())
		_, err = locker.NewJob(s, gocron.DurationJob(time.Minute), strings.Repeat("x", 1024-len("gocron/")), never)
		require.NoError(t, err)
	})
}

// A job that gives its lock away while it runs has not lost it: its error is its own.
func TestAJobMayReleaseItsLockOrHandItOver(t *testing.T) {
	for name, giveAway := range map[string]func(context.Context, *redlock.Lease) error{
		"release":   func(ctx context.Context, lease *redlock.Lease) error { return lease.Release(ctx) },
		"hand over": func(ctx context.Context, lease *redlock.Lease) error { _, err := lease.Detach(ctx); return err },
	} {
		for returns, own := range map[string]error{"nil": nil, "an error": errors.New("no paper")} {
			t.Run(name+", and it returns "+returns, func(t *testing.T) {
				bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
					client, s := connectTo(t, nodes), schedule(t)
					ended := make(chan error, 1)
					_, err := newLocker(t, client, redlockgocron.MinHold(0)).NewJob(s, gocron.DurationJob(time.Hour), "job",
						func(ctx context.Context, lease *redlock.Lease) error {
							require.NoError(t, giveAway(ctx, lease))
							return own
						}, gocron.WithStartAt(gocron.WithStartImmediately()),
						gocron.WithEventListeners(
							gocron.AfterJobRuns(func(uuid.UUID, string) { ended <- nil }),
							gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { ended <- err })))
					require.NoError(t, err)
					s.Start()
					require.Equal(t, own, <-ended)
				})
			})
		}
	}
}

// When the scheduler shuts down, the job's context ends. The lock is released when the job has returned, not before.
func TestAShutdownEndsTheJobAndThenReleasesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		var released atomic.Value
		client := connectTo(t, nodes, func(cfg *redlock.Config) {
			cfg.Hooks.Released = func(_ redlock.LeaseInfo, err error) { released.Store(fmt.Sprint(err)) }
		})
		other := connectTo(t, nodes)
		s, err := gocron.NewScheduler()
		require.NoError(t, err)
		running, ended := make(chan struct{}), make(chan struct{})
		_, err = newLocker(t, client, redlockgocron.MinHold(0)).NewJob(s, gocron.DurationJob(time.Hour), "job",
			func(ctx context.Context, lease *redlock.Lease) error {
				close(running)
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), context.Canceled, "and not redlock's")
				_, err := other.Mutex("gocron/job").TryAcquire(context.Background())
				require.ErrorIs(t, err, redlock.ErrHeld)
				close(ended)
				return ctx.Err()
			}, gocron.WithStartAt(gocron.WithStartImmediately()))
		require.NoError(t, err)
		s.Start()
		<-running
		require.NoError(t, s.Shutdown())
		<-ended
		synctest.Wait()
		require.Equal(t, "<nil>", released.Load(), "Unlock waited for the nodes")
		lease, err := other.Mutex("gocron/job").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestAJobThatPanicsReleasesItsLock(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client, s := connectTo(t, nodes), schedule(t)
		panicked := make(chan any, 1)
		_, err := newLocker(t, client, redlockgocron.MinHold(0)).NewJob(s, gocron.DurationJob(time.Hour), "job",
			func(context.Context, *redlock.Lease) error { panic("no paper") },
			gocron.WithStartAt(gocron.WithStartImmediately()),
			gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, value any) { panicked <- value })))
		require.NoError(t, err)
		s.Start()
		require.Equal(t, "no paper", <-panicked)
		lease, err := client.Mutex("gocron/job").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// gocron may lock a job and then not run it. The next run must not get the lease of that one, which has ended.
func TestARunThatIsSkippedLeavesNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		s := schedule(t)
		ran, before := make(chan bool, 10), 0
		_, err := newLocker(t, connectTo(t, nodes)).NewJob(s, gocron.DurationJob(time.Minute), "job",
			func(_ context.Context, lease *redlock.Lease) error { ran <- lease.Valid(); return nil },
			gocron.WithEventListeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error {
				if before++; before == 1 {
					return errors.New("not this time")
				}
				return nil
			})))
		require.NoError(t, err)
		s.Start()
		require.True(t, <-ran)
		require.Equal(t, 2, before)
	})
}

// A job that takes longer than its interval is nowhere started again before it is done.
func TestALongJobIsNotStartedAgainBeforeItIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		var running, most, runs atomic.Int64
		for i := range 3 {
			s := schedule(t)
			_, err := newLocker(t, connectTo(t, nodes)).NewJob(s, gocron.DurationJob(10*time.Second), "job",
				func(ctx context.Context, _ *redlock.Lease) error {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					runs.Add(1)
					select {
					case <-time.After(25 * time.Second):
					case <-ctx.Done(): // at the end: gocron polls while it stops, so virtual time stands still
					}
					return nil
				}, at(time.Duration(i)*time.Second))
			require.NoError(t, err)
			s.Start()
		}
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, most.Load())
		require.Greater(t, runs.Load(), int64(8))
	})
}

// A job that was started without its lock does not run: here because gocron asks the elector only.
func TestAJobWithoutItsLockDoesNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connectTo(t, nodes)
		elector, err := redlockgocron.NewElector(client.Mutex("leader"), redlockgocron.Settle(0))
		require.NoError(t, err)
		defer elector.Close()
		synctest.Wait()
		for name, c := range map[string]struct {
			scheduler []gocron.SchedulerOption
			job       []gocron.JobOption
		}{
			"an elector":        {scheduler: []gocron.SchedulerOption{gocron.WithDistributedElector(elector)}},
			"a disabled locker": {job: []gocron.JobOption{gocron.WithDisabledDistributedJobLocker(true)}},
		} {
			s, failed := schedule(t, c.scheduler...), make(chan error, 1)
			_, err = newLocker(t, client).NewJob(s, gocron.DurationJob(time.Hour), "job",
				func(context.Context, *redlock.Lease) error { t.Error(name); return nil },
				append(c.job, gocron.WithStartAt(gocron.WithStartImmediately()),
					gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))...)
			require.NoError(t, err)
			s.Start()
			require.ErrorIs(t, <-failed, redlockgocron.ErrNoLock)
		}
	})
}

// A process that was suspended has lost its lease before any timer says so.
func TestALeaseThatEndedUnnoticedIsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		var suspended clock
		client := connectTo(t, nodes, func(cfg *redlock.Config) { cfg.Clock = &suspended })
		elector, err := redlockgocron.NewElector(client.Mutex("leader"), redlockgocron.Settle(0))
		require.NoError(t, err)
		defer elector.Close()
		s, failed, runs := schedule(t), make(chan error, 10), 0
		_, err = newLocker(t, client).NewJob(s, gocron.DurationJob(time.Minute), "job",
			func(context.Context, *redlock.Lease) error {
				runs++
				suspended.ahead.Add(int64(time.Hour))
				return nil
			},
			gocron.WithEventListeners(
				gocron.BeforeJobRuns(func(uuid.UUID, string) {
					if runs == 1 {
						suspended.ahead.Add(int64(time.Hour))
					}
				}),
				gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
		require.NoError(t, err)
		s.Start()
		synctest.Wait()
		require.NoError(t, elector.IsLeader(t.Context()))
		require.ErrorIs(t, <-failed, redlock.ErrLost, "it was suspended while the job ran")
		require.ErrorIs(t, <-failed, redlock.ErrLost, "it was suspended before the job ran")
		require.Equal(t, 1, runs)

		require.Eventually(t, func() bool { return elector.IsLeader(t.Context()) == nil }, time.Minute, time.Millisecond)
		suspended.ahead.Add(int64(time.Hour))
		require.ErrorIs(t, elector.IsLeader(t.Context()), redlockgocron.ErrNotLeader)
	})
}

// The replicas are started some minutes apart, as by a rolling update. The package documentation says what makes them tick
// at the same times.
func TestReplicasThatTickAtTheSameTimesRunEachTickOnce(t *testing.T) {
	const interval = 10 * time.Minute
	for name, when := range map[string]func() (gocron.JobDefinition, []gocron.JobOption){
		"cron": func() (gocron.JobDefinition, []gocron.JobOption) { return gocron.CronJob("*/10 * * * *", false), nil },
		"a duration with a common start": func() (gocron.JobDefinition, []gocron.JobOption) {
			start := time.Now().Truncate(interval).Add(interval)
			return gocron.DurationJob(interval), []gocron.JobOption{gocron.WithStartAt(gocron.WithStartDateTime(start))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
				var runs atomic.Int32
				for range 3 {
					time.Sleep(time.Minute)
					s := schedule(t)
					job, options := when()
					_, err := newLocker(t, connectTo(t, nodes)).NewJob(s, job, "report",
						func(context.Context, *redlock.Lease) error { runs.Add(1); return nil }, options...)
					require.NoError(t, err)
					s.Start()
				}
				time.Sleep(3 * interval)
				require.EqualValues(t, 3, runs.Load())
			})
		})
	}
}

func TestAHoldWithoutAUnitIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connectTo(t, nodes)
		_, err := redlockgocron.NewLocker(client, redlockgocron.MinHold(20))
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "20*time.Second")
		_, err = redlockgocron.NewElector(client.Mutex("leader"), redlockgocron.Settle(5))
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "5*time.Second")
	})
}
