package redlock

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// A dialler refuses connections, and notes the times since the first one.
type dialler struct {
	refusal error

	mu    sync.Mutex
	begun time.Time
	times []time.Duration
}

func (d *dialler) dial(context.Context) (redis.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun.IsZero() {
		d.begun = time.Now()
	}
	d.times = append(d.times, time.Since(d.begun))
	return nil, d.refusal
}

// pauses are the times between the calls so far.
func (d *dialler) pauses() (all []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.times[1:] {
		all = append(all, d.times[i+1]-d.times[i])
	}
	return all
}

// growing is pauses that double from backoffMin until they are as long as this.
func growing(longest time.Duration, count int) (pauses []time.Duration) {
	for d := backoffMin; len(pauses) < count; d = min(2*d, longest) {
		pauses = append(pauses, d)
	}
	return pauses
}

func TestANodeThatIsAwayIsDialledEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := offline(t), dialler{refusal: redis.Error("LOADING")}
		n := c.nodes[0]
		n.endpoint.dial = d.dial
		ctx, cancel := context.WithCancel(t.Context())
		go n.run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, growing(backoffMax, 20), d.pauses()[:20])
		begun := time.Now()
		cancel()
		<-n.ended
		require.Equal(t, begun, time.Now())
	})
}

// A node that is closed while it is away tries once more to connect, because releases may be owed, and then ends.
func TestANodeThatIsAwayIsDialledOnceMoreWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := offline(t), dialler{refusal: errConnecting}
		n := c.nodes[0]
		n.endpoint.dial = d.dial
		go n.run(t.Context())
		time.Sleep(30*time.Millisecond + 1)
		synctest.Wait()
		require.Len(t, d.pauses(), 2)
		begun := time.Now()
		n.close()
		<-n.ended
		require.Equal(t, begun, time.Now())
		require.Len(t, d.pauses(), 3)
	})
}

func TestASubscriberDialsEverLessOften(t *testing.T) {
	for refusal, longest := range map[error]time.Duration{errConnecting: backoffMax, redis.Error("NOPERM"): refusedMax} {
		synctest.Test(t, func(t *testing.T) {
			c, d := offline(t), dialler{refusal: refusal}
			s := c.waiters.subscribers[0]
			s.node.endpoint.dial = d.dial
			s.running = false
			c.waiters.listen(newResource("", "x", nil)) // starts it
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Equal(t, growing(longest, 20), d.pauses()[:20])
			begun := time.Now()
			close(c.ending)
			c.waiters.wait()
			require.Equal(t, begun, time.Now())
		})
	}
}
