package traffic

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/sleep"
)

// A Pace is how a worker works.
type Pace struct {
	Wait  time.Duration // for the lock, at most
	Work  time.Duration // between reading and writing
	Pause time.Duration // between two locks, on average
	Long  time.Duration // three of four holders work for up to this long, also when their lease is over; 0: none does

	Kind  subject.Kind // of the lock
	Peers []*Actor     // to whom a lock may be handed
}

// want draws what a worker wants. It draws nothing for a mutex, so that runs with one seed stay the same.
func (p *Pace) want(r *rand.Rand) subject.Want {
	switch {
	case p.Kind.Permits > 0:
		return subject.Want{Permits: 1 + r.IntN(4)/3*(p.Kind.Permits-1)} // mostly one, at times all
	case p.Kind.Lock == history.ReadWrite:
		return subject.Want{Reader: r.IntN(3) > 0}
	}
	return subject.Want{}
}

// work draws how long a worker works. It draws nothing if none works long.
func (p *Pace) work(r *rand.Rand) time.Duration {
	if p.Long > 0 && r.IntN(4) > 0 {
		return time.Duration(r.Int64N(int64(p.Long)))
	}
	return p.Work
}

// Work repeats until stop ends: acquire the lock, read, work, write, release. It returns early if the subject panics.
// At stop it waits for an acquire in flight, because the effect of a cancelled acquire is unknown. ctx ends that wait
// too.
func (a *Actor) Work(ctx, stop context.Context, g *Guarded, p Pace, r *rand.Rand) {
	for stop.Err() == nil && ctx.Err() == nil && len(a.log.Panics()) == 0 {
		pause := time.Duration(r.Int64N(2*int64(p.Pause) + 1))
		held := a.wait(ctx, g, p.want(r), p.Wait)
		if held == nil {
			pause *= 4 // try less often while nothing is granted
		} else {
			held.work(ctx, p, r)
		}
		_ = sleep.For(stop, pause)
	}
}

func (a *Actor) wait(ctx context.Context, g *Guarded, w subject.Want, patience time.Duration) *Held {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	held, _ := a.Acquire(ctx, g, w) // its error is recorded
	return held
}

// work uses the lock, and leaves it.
func (h *Held) work(ctx context.Context, p Pace, r *rand.Rand) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*p.Wait)
	defer done()
	for passed := true; passed && h != nil; {
		h.Read()
		time.Sleep(p.work(r)) // so that another write could come in between
		h.Write()
		h, passed = h.passOn(ctx, p.Peers, r)
	}
	if h == nil {
		return
	}
	release, done := context.WithTimeout(ctx, p.Wait)
	defer done()
	_ = h.Release(release) // its error is recorded
}
