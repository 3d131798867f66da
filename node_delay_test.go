package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A2: Answers that come after a pause of this process say nothing about the nodes. Otherwise a node that dies some time
// later would be waited for until NodeTimeout, before the others are asked.
func TestAfterAPauseASilentNodeIsWaitedForNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		for _, s := range w.servers {
			s.slow(0, 2*time.Millisecond)
		}
		took := func() time.Duration {
			began := time.Now()
			l, err := all[0].Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			defer l.Release(t.Context())
			return time.Since(began)
		}
		for range 20 {
			took()
		}
		for _, s := range w.servers {
			s.links[0].hold(replies, +1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout/2)
		defer cancel()
		_, err := all[0].Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(nodeTimeout)
		for _, s := range w.servers {
			s.links[0].hold(replies, -1)
		}
		time.Sleep(time.Second)
		took()
		for _, s := range w.servers {
			s.links[0].hold(replies, +1)
			require.Less(t, took(), nodeTimeout/4)
			s.links[0].hold(replies, -1)
			time.Sleep(time.Second)
		}
	})
}
