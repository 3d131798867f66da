package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// A seen clock is the system's, and tells when it is read.
type seen struct {
	Clock
	read atomic.Pointer[func()]
}

func (s *seen) Now() Instant {
	if tell := s.read.Load(); tell != nil {
		(*tell)()
	}
	return s.Clock.Now()
}

// Hooks: that a renewal failed is told before a loss that comes just then. The clock is read while the hook's LeaseInfo is
// made.
func TestAFailedRenewalIsToldBeforeTheEndOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no second renewal is due meanwhile
		var told []string // the notifier's, until Close has returned
		away := func(context.Context) (redis.Conn, error) { return nil, errors.New("away") }
		clock := &seen{Clock: SystemClock()}
		c, err := New(Config{Nodes: []Node{{Name: "a", Dial: away}}, Clock: clock, Hooks: Hooks{
			ExtendFailed: func(LeaseInfo, error) { told = append(told, "failed") },
			Lost:         func(LeaseInfo, error) { told = append(told, "lost") },
		}})
		require.NoError(t, err)
		o := leaseOf(c).ownership
		r := c.newRound(plan{call: call{script: c.protocol.extend}})
		r.record(0, answer{vote: unknown, err: errors.New("away")})
		lost := make(chan struct{})
		loses := func() { // in any goroutine that reads the clock
			if !o.mu.TryLock() {
				return
			}
			failed := o.failures > 0
			o.mu.Unlock()
			if failed && clock.read.Swap(nil) != nil {
				o.lose(errExpired)
				close(lost)
			}
		}
		clock.read.Store(&loses)
		o.renewalFailed(r)
		for clock.read.Load() != nil { // the loss comes here, unless it has come before; another goroutine may have the mutex
			clock.Now()
		}
		<-lost
		require.NoError(t, c.Close())
		require.Equal(t, []string{"failed", "lost"}, told)
	})
}
