package redlock

import (
	"context"
	"sync"
	"time"
)

// timers keeps stopped timers for reuse, because every round needs one and few fire. Each client has its own timers:
// one that was made in a testing/synctest bubble must not leave the bubble.
type timers struct{ pool sync.Pool }

// A timer says when the wait for answers is over. It belongs to one goroutine.
type timer struct {
	*time.Timer
	least time.Duration // how long it is started again at least
	again bool          // it was started again
}

// start makes a timer that fires after d.
func (t *timers) start(d time.Duration) timer {
	if pooled, ok := t.pool.Get().(*time.Timer); ok {
		pooled.Reset(d)
		return timer{Timer: pooled, least: d / 16}
	}
	return timer{Timer: time.NewTimer(d), least: d / 16}
}

// stop need not drain the channel: since Go 1.23 the channel of a stopped timer is empty.
func (t *timers) stop(timer timer) {
	timer.Stop()
	t.pool.Put(timer.Timer)
}

// isOver is asked when the timer has fired. due is what the channel gave: since Go 1.23, the time at which the timer had
// to fire. In real time every timer fires late. So the first time isOver reports false, and starts the timer again for
// as long as it was late, or a little longer.
//
// A late timer shows that this process stood still, or had no processor. Answers may have come meanwhile that nobody has
// read, because the runtime looks at timers first. So it would be wrong to call these nodes silent.
func (t *timer) isOver(due time.Time) bool {
	late := time.Since(due)
	if late <= 0 || t.again {
		return true
	}
	t.again = true
	t.Reset(max(late, t.least))
	return false
}

// hasEnded reports whether ctx has ended. It also does if its deadline is over: when this process has stood still, other timers
// are perhaps looked at before that of ctx.
func hasEnded(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, bounded := ctx.Deadline()
	return bounded && time.Until(deadline) <= 0
}
