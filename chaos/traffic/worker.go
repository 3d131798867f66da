package traffic

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/redlock/internal/sleep"
)

// A Pace is how a worker works.
type Pace struct {
	Wait  time.Duration // for the lock, at most
	Work  time.Duration // between reading and writing
	Pause time.Duration // between two locks, on average
}

// Work repeats until stop ends: acquire the lock, read, work, write, release. It returns early if the subject panics.
// At stop it waits for an acquire in flight, because the effect of a cancelled acquire is unknown. ctx ends that wait
// too.
func (a *Actor) Work(ctx, stop context.Context, g *Guarded, p Pace, r *rand.Rand) {
	for stop.Err() == nil && ctx.Err() == nil && len(a.log.Panics()) == 0 {
		pause := time.Duration(r.Int64N(2*int64(p.Pause) + 1))
		held := a.wait(ctx, g, p.Wait)
		if held == nil {
			pause *= 4 // try less often while nothing is granted
		} else {
			held.Read()
			time.Sleep(p.Work) // so that another write could come in between
			held.Write()
			release, done := context.WithTimeout(context.WithoutCancel(ctx), p.Wait)
			_ = held.Release(release) // its error is recorded
			done()
		}
		_ = sleep.For(stop, pause)
	}
}

func (a *Actor) wait(ctx context.Context, g *Guarded, patience time.Duration) *Held {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	held, _ := a.Acquire(ctx, g) // its error is recorded
	return held
}
