package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// Q1: INFO vouches for the data set for 10 ms from when it was asked for. A request that was sent within that time may
// reach the server much later, when the data set is another one. So a late grant waits for another INFO.
func TestAVoteThatTheNetworkHeldUpIsVouchedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 2)
		holder, other := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, holder.Enroll(t.Context()))
		other.Status(t.Context()) // it has heard that all are ready
		three := w.servers[2]
		three.save() // the lock will never reach this copy
		for i := range 2 {
			w.servers[3+i].links[0].hold(requests, 1)
			w.servers[i].links[1].hold(requests, 1)
		}
		lease, err := holder.Mutex("x").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		_, err = other.Mutex("y").Acquire(t.Context()) // INFO vouches for the nodes that granted
		require.NoError(t, err)
		three.links[1].hold(requests, 1)
		tried := make(chan *redlock.Lease)
		go func() {
			got, _ := other.Mutex("x").TryAcquire(t.Context())
			tried <- got
		}()
		synctest.Wait() // the request is on its way
		time.Sleep(100 * time.Millisecond)
		three.failBackUnseen()
		three.links[1].hold(requests, -1)
		next := <-tried
		require.False(t, next != nil && lease.Valid() && next.Valid(), "two hold it, for %v more", lease.Remaining())
	})
}

// Q1: A vote that is vouched for late still counts.
func TestAVoteThatTheNetworkHeldUpCountsIfTheDataSetIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		for range 3 {
			_, err := c.Mutex("y").WithTTL(time.Second).WithoutRenewal().Acquire(t.Context())
			require.NoError(t, err)
			for _, s := range w.servers {
				s.links[0].hold(requests, 1)
			}
			tried := make(chan error)
			go func() {
				l, err := c.Mutex("x").TryAcquire(t.Context())
				if err == nil {
					err = l.Release(t.Context())
				}
				tried <- err
			}()
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			for _, s := range w.servers {
				s.links[0].hold(requests, -1)
			}
			require.NoError(t, <-tried)
			time.Sleep(time.Second)
		}
	})
}
