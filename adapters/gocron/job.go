package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/redlock"
)

// ErrNoLock is the error of a job from [Locker.NewJob] that was started without its lock. It has not run. The scheduler
// has an elector, or the job's locker was disabled.
var ErrNoLock = errors.New("redlockgocron: the job was started without its lock")

// NewJob adds a job to the scheduler that runs under a lock of its name. run gets a context that ends when the lock is
// lost, and when gocron ends the job; [context.Cause] tells which. If the lock was lost, the job's error is
// [redlock.ErrLost], joined with that of run. run may release the lock early ([redlock.Lease.Release]) or hand it over
// ([redlock.Lease.Detach]): the job's error is then that of run alone.
//
// All replicas must tick at the same times of the day, as by gocron.CronJob. A gocron.DurationJob needs a common start;
// otherwise it runs once an interval on each replica. See the package documentation.
//
// The lock is kept for half of the job's shortest interval at least, as far as the client's MaxTTL leaves room for that,
// unless the Locker has a [MinHold]. If gocron knows of no next run, it is [DefaultSpread].
//
// The name must be that of the same job in all replicas, and of no other. It is also the job's name in gocron. The options
// may have none, and no locker. Errors are those of gocron, and [redlock.ErrInvalid], also for a name that is too long for a
// lock.
func (l *Locker) NewJob(scheduler gocron.Scheduler, when gocron.JobDefinition, name string,
	run func(context.Context, *redlock.Lease) error, options ...gocron.JobOption) (gocron.Job, error) {
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: name: it is empty", redlock.ErrInvalid)
	case run == nil:
		return nil, fmt.Errorf("%w: run: it is nil", redlock.ErrInvalid)
	}
	if err := refusal(l.mutex(name)); err != nil { // otherwise each tick would be refused, which gocron does not tell
		return nil, err
	}
	j := &job{locker: l, name: name, run: run}
	options = append(slices.Clip(options), gocron.WithName(name), gocron.WithDistributedJobLocker(j))
	made, err := scheduler.NewJob(when, gocron.NewTask(j.start), options...)
	if err != nil {
		return nil, err
	}
	j.made.Store(&made)
	return made, nil
}

// A job hands the lease of each run from gocron's call of Lock to that of the task. gocron gives them nothing in common,
// but calls them in pairs, and Unlock after them.
type job struct {
	locker *Locker
	name   string
	run    func(context.Context, *redlock.Lease) error
	made   atomic.Pointer[gocron.Job] // nil: NewJob has not returned

	mu       sync.Mutex       // guards the rest
	leases   []*redlock.Lease // of runs whose task has not begun
	interval time.Duration    // the shortest between two runs; 0: not known
}

// Lock implements [gocron.Locker].
func (j *job) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	lease, err := j.locker.acquire(ctx, j.name, j.minHold())
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	j.leases = append(j.leases, lease)
	j.mu.Unlock()
	return jobLock{lock{lease}, j}, nil
}

// minHold is half of the job's shortest interval, as far as the client allows that.
func (j *job) minHold() time.Duration {
	l := j.locker
	made := j.made.Load()
	if l.isSet || made == nil {
		return l.minHold
	}
	j.mu.Lock()
	interval := j.interval
	j.mu.Unlock()
	if interval == 0 { // not known so far: gocron knows the next runs only once the scheduler has started
		if interval = shortestInterval(*made); interval == 0 {
			return l.minHold
		}
		j.mu.Lock()
		j.interval = interval
		j.mu.Unlock()
	}
	return min(interval/2, l.limit)
}

// shortestInterval is the shortest time between two runs of a job, as far as gocron tells it; 0: not known.
func shortestInterval(made gocron.Job) (shortest time.Duration) {
	switch schedule := made.Schedule().(type) {
	case gocron.DurationJobSchedule:
		return schedule.Duration
	case gocron.DurationRandomJobSchedule: // NextRuns would draw from the random source that gocron's goroutine uses
		return schedule.Min
	}
	runs, err := made.NextRuns(12)
	if err != nil {
		return 0
	}
	// The first run may be one that was asked for, at any time before the next one of the schedule.
	for i := 2; i < len(runs) && !runs[i-1].IsZero(); i++ { // after the last run, the time is zero
		if d := runs[i].Sub(runs[i-1]); d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}

// start is the task. If two runs begin at the same time, because the first has lost its lock, they may get the leases of
// one another. Each lease still has one run, and ends its context.
func (j *job) start(ctx context.Context) error {
	lease := j.next()
	if lease == nil {
		return fmt.Errorf("%w: %s", ErrNoLock, j.name)
	}
	if err := lost(lease); err != nil {
		return err
	}
	err := j.run(lease.With(ctx), lease)
	switch lost := lost(lease); {
	case lost == nil, errors.Is(lost, redlock.ErrReleased): // run released the lease itself, or handed it over
		return err
	case err == nil:
		return lost
	default:
		return fmt.Errorf("%w: %w", lost, err)
	}
}

// lost is why the lease has ended; nil: it has not.
func lost(lease *redlock.Lease) error {
	if cause := context.Cause(lease.Context()); cause != nil {
		return cause
	}
	if !lease.Valid() { // no timer has noticed that, as after a pause of the process
		return redlock.ErrLost
	}
	return nil
}

// next takes the lease of a run whose task has not begun; nil: there is none.
func (j *job) next() *redlock.Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.leases) == 0 {
		return nil
	}
	lease := j.leases[0]
	j.leases = j.leases[1:]
	return lease
}

// A jobLock forgets its lease, if no task has taken it.
type jobLock struct {
	lock
	job *job
}

// Unlock implements [gocron.Lock].
func (l jobLock) Unlock(ctx context.Context) error {
	j := l.job
	j.mu.Lock()
	j.leases = slices.DeleteFunc(j.leases, func(lease *redlock.Lease) bool { return lease == l.lease })
	j.mu.Unlock()
	return l.lock.Unlock(ctx)
}
