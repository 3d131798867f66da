package redlockgocron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sort"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/redlock"
)

// A Locker locks the runs of jobs. Use it by [Locker.NewJob], or give it to gocron.WithDistributedLocker or
// gocron.WithDistributedJobLocker. It is safe for concurrent use, by any number of schedulers.
//
// All replicas must tick at the same times of the day: see "The same ticks on all replicas" in the package documentation.
//
// The name of a job's lock is "gocron/" and the name of the job, so give each job a name (gocron.WithName). Otherwise
// gocron names it after its function, and jobs that are made in one place have one name.
type Locker struct {
	client  *redlock.Client
	minHold time.Duration // set by MinHold; else DefaultSpread, or limit if that is less
	isSet   bool          // by MinHold
	limit   time.Duration // the longest minimum hold that the client allows

	mu   sync.Mutex           // guards the rest
	kept map[string]time.Time // by job: until when its lock is kept, as this Locker acquired it
}

var _ gocron.Locker = (*Locker)(nil)

// A LockerOption is for [NewLocker].
type LockerOption func(*Locker)

// MinHold sets how long a lock is kept at least, for all jobs of the Locker. 0: no longer than the job takes. It is
// twice as long as the replicas' ticks are apart, so that none runs twice, and shorter than the interval of each job, which
// would skip ticks otherwise.
func MinHold(d time.Duration) LockerOption {
	return func(l *Locker) { l.minHold, l.isSet = d, true }
}

// NewLocker makes a Locker on the nodes of the client, which must stay open for as long as the Locker is used. It needs
// no closing. Errors are [redlock.ErrInvalid]: a MinHold that is negative or without a unit, or for which the client's MaxTTL leaves no
// room.
func NewLocker(client *redlock.Client, options ...LockerOption) (*Locker, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: client: it is nil", redlock.ErrInvalid)
	}
	l := &Locker{client: client, limit: longestHold(client), kept: map[string]time.Time{}}
	for _, option := range options {
		option(l)
	}
	switch {
	case l.isSet && l.minHold < 0:
		return nil, fmt.Errorf("%w: MinHold: %v is negative", redlock.ErrInvalid, l.minHold)
	case l.isSet && hasNoUnit(l.minHold):
		return nil, noUnit("MinHold", l.minHold)
	case l.isSet && l.minHold > l.limit:
		return nil, fmt.Errorf("%w: MinHold: %v is above %v, for which MaxTTL leaves room; raise MaxTTL on every client of these nodes, and on the nodes (redlock enroll --change-config)",
			redlock.ErrInvalid, l.minHold, l.limit)
	case !l.isSet && l.limit == 0:
		return nil, fmt.Errorf("%w: MinHold: MaxTTL leaves no room for any; raise MaxTTL on every client of these nodes, and on the nodes (redlock enroll --change-config), or give MinHold(0)",
			redlock.ErrInvalid)
	case !l.isSet:
		l.minHold = min(DefaultSpread, l.limit)
	}
	return l, nil
}

// longestHold is the longest minimum hold that the client allows, in whole milliseconds, up to a day.
func longestHold(client *redlock.Client) time.Duration {
	const most = int(24 * time.Hour / time.Millisecond)
	refused := sort.Search(most, func(i int) bool {
		return refusal(client.Mutex("gocron").WithMinHold(time.Duration(i+1)*time.Millisecond)) != nil
	})
	return time.Duration(refused) * time.Millisecond
}

// refusal is why the lock is not allowed, whoever holds it; nil: it is. It sends nothing: a lock that is not allowed is
// refused before ctx is looked at.
func refusal(lock redlock.Lock) error {
	never, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := lock.TryAcquire(never); errors.Is(err, redlock.ErrInvalid) {
		return err
	}
	return nil
}

// Lock locks the job, if no replica has it. It waits for the nodes no longer than half of the minimum hold. The error is
// [redlock.ErrHeld] or [redlock.ErrNoQuorum], or ctx.Err() or [redlock.ErrClosed].
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.acquire(ctx, job, l.minHold)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

func (l *Locker) mutex(job string) redlock.Lock { return l.client.Mutex("gocron/" + job) }

func (l *Locker) acquire(ctx context.Context, job string, minHold time.Duration) (*redlock.Lease, error) {
	lease, err := try(ctx, l.mutex(job), minHold)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.kept, func(_ string, until time.Time) bool { return !until.After(now) }) // names may come and go
	if err == nil {
		l.kept[job] = now.Add(minHold)
		return lease, nil
	}
	if until, found := l.kept[job]; found && errors.Is(err, redlock.ErrHeld) {
		return nil, fmt.Errorf("this process began the job last, and keeps its lock for %v more: let MinHold be shorter than the interval, "+
			"and give each job a name of its own: %w", until.Sub(now).Round(time.Millisecond), err)
	}
	return nil, err
}

// try gives up after half of the minimum hold: what is granted later may be free because another replica has run the tick, and
// its minimum hold is over. The other half is for replicas that tick later than that one.
func try(ctx context.Context, mutex redlock.Lock, minHold time.Duration) (*redlock.Lease, error) {
	if minHold <= 0 {
		return mutex.TryAcquire(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, minHold/2)
	defer cancel()
	lease, err := mutex.WithMinHold(minHold).TryAcquire(bounded)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: no answer within %v, half of the minimum hold; later, the tick may have run elsewhere",
			redlock.ErrNoQuorum, minHold/2)
	}
	return lease, err
}

// A lock is that of one run.
type lock struct{ lease *redlock.Lease }

// Unlock waits for the nodes also if ctx has ended, as it has when the scheduler shuts down: the process may be about to
// end. redlock waits no longer than NodeTimeout.
func (l lock) Unlock(ctx context.Context) error {
	return l.lease.Release(context.WithoutCancel(ctx))
}

// hasNoUnit reports whether the unit of the time was forgotten: 250 is 250ns.
func hasNoUnit(d time.Duration) bool { return d > 0 && d < time.Microsecond }

// noUnit is the error of an option for which hasNoUnit is true.
func noUnit(option string, d time.Duration) error {
	return fmt.Errorf("%w: %s: %v is too short to be meant; give it a unit: %d*time.Second, for example",
		redlock.ErrInvalid, option, d, d.Nanoseconds())
}
