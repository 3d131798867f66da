// Package redlockgocron lets the replicas of a program run each tick of a gocron job once: on one of them.
//
// There are two ways. A [Locker] locks each run of each job, so that the jobs spread over the replicas. An [Elector] has
// one replica lead, which runs all jobs until it goes.
//
//	locker, err := redlockgocron.NewLocker(client)
//	…
//	scheduler, err := gocron.NewScheduler()
//	…
//	_, err = locker.NewJob(scheduler, gocron.CronJob("*/5 * * * *", false), "report",
//		func(ctx context.Context, lease *redlock.Lease) error {
//			return report(ctx, lease.Fence()) // ctx ends if the lock is lost, and when the scheduler shuts down
//		})
//
// # The same ticks on all replicas
//
// With a [Locker], replicas must tick at the same times of the day. Those of gocron.CronJob do, and those of DailyJob,
// WeeklyJob and MonthlyJob with an interval of 1, if all use one time zone (gocron.WithLocation). Those of gocron.DurationJob
// do not: its ticks are counted from the start of each replica. An hourly job of three replicas, started some minutes apart, would run three times an
// hour. So give it a common start, and never gocron.WithStartImmediately:
//
//	gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Truncate(d).Add(d)))
//
// A scheduler with gocron.WithLimitConcurrentJobs and gocron.LimitModeWait starts a tick late if that replica is busy with
// other jobs. If it is later than the minimum hold, the tick runs twice. Use gocron.LimitModeReschedule, which skips it.
//
// gocron.DurationRandomJob has no common ticks, nor has a job with gocron.WithIntervalFromCompletion. Use an [Elector] for
// them. gocron does not tell a Locker how a job starts, so there is no error.
//
// # One tick, one run
//
// Even so, replicas do not tick at the same moment: their clocks differ, and a busy machine is late. A job that is done before the
// last replica ticks would run once more there. So a lock stays taken for a minimum hold, also when the job is done (see
// redlock.Lock.WithMinHold). It must be twice as long as the replicas differ in starting one tick, and shorter than
// the interval of the job. A try of the lock, which is slow while a node does not answer, is given up after half of it.
// [Locker.NewJob] takes half the interval. gocron does not tell a Locker the interval; used by gocron.WithDistributedLocker it
// takes [DefaultSpread]. [MinHold] sets another one.
//
// The longest minimum hold is what the client's MaxTTL leaves room for: some 28 s with the defaults of redlock. If
// replicas differ by more, raise MaxTTL: stop all clients first, because all must have the same.
//
// A replica that is refused skips the tick. gocron gives the error to the job's AfterLockError: redlock.ErrHeld if
// another replica has the tick, redlock.ErrNoQuorum if too few nodes vote. Then no replica runs it.
//
// # When something goes wrong
//
//   - The lease is lost while the job runs. The context of a job from NewJob ends before another replica can have the
//     lock, and the job's error is redlock.ErrLost. gocron gives other jobs a context that does not know the lock. Give
//     the resource lease.Fence(), as with every lock.
//   - The lock cannot be released. gocron drops the error of Unlock. redlock.Hooks.Released gets it. The lock expires by
//     itself, after its TTL.
//   - The scheduler shuts down. The contexts of its jobs end, and each lock is released when its job has returned, not
//     before. Close the redlock client after the scheduler. If Shutdown returned gocron.ErrStopJobsTimedOut, a job still
//     runs, and Close gives its lock away: end the process instead, or wait.
//   - The job takes longer than its interval. No replica starts it again before it is done.
//   - The replica dies. The lock expires after its TTL, or after the minimum hold if that is longer.
package redlockgocron

import "time"

// DefaultSpread is how far apart the replicas' ticks may be if nothing else is said: the minimum hold of a Locker that
// does not know a job's interval, and how long a new leader waits before it leads. It is less if the client's MaxTTL
// leaves no room for it.
const DefaultSpread = 5 * time.Second
