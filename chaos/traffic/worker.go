package traffic

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Pace is how a worker works.
type Pace struct {
	Wait  time.Duration // for the lock, at the most
	Work  time.Duration // between reading and writing
	Pause time.Duration // between two locks, on average
}

// Work takes the lock again and again until stop ends: reads, works, writes, and lets go. It returns early if
// the subject panics. An acquire that is under way at stop is waited for, as what a cancelled one has done
// nobody knows; ctx ends that wait too.
func (a *Actor) Work(ctx, stop context.Context, g *Guarded, p Pace, r *rand.Rand) {
	for stop.Err() == nil && ctx.Err() == nil && len(a.log.Panics()) == 0 {
		pause := time.Duration(r.Int64N(2*int64(p.Pause) + 1))
		held := a.wait(ctx, g, p.Wait)
		if held == nil {
			pause *= 4 // where nothing is granted, it is asked for less often
		} else {
			held.Read()
			nap(context.Background(), p.Work) // for another to come between, if one could
			held.Write()
			release, done := context.WithTimeout(context.WithoutCancel(ctx), p.Wait)
			_ = held.Release(release) // it is in the record
			done()
		}
		nap(stop, pause)
	}
}

func (a *Actor) wait(ctx context.Context, g *Guarded, patience time.Duration) *Held {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	held, _ := a.Acquire(ctx, g) // it is in the record
	return held
}

func nap(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
