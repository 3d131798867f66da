package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// What functions and types of the user's may do, and what then goes on.

// A Dial, or Credentials, that ends its goroutine has failed. It opened nothing, and who it logs in is not known: without a
// login, the connection would have the server's default user, and another database.
func TestAFunctionOfTheUsersThatEndsItsGoroutineHasFailed(t *testing.T) {
	running := make(chan struct{}, 1)
	for range 2 { // it is called again
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := callUser(ctx, running, "Dial", func() (redis.Conn, error) {
			runtime.Goexit()
			return nil, nil
		}, func(redis.Conn) {})
		cancel()
		require.EqualError(t, err, "its Dial ended its goroutine")
	}
}

// A hook that ends its goroutine, as t.FailNow does, ends no other hook, nor the log.
func TestAHookThatEndsItsGoroutineEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := 0
		cfg := Config{Hooks: Hooks{NodeUp: func(string) {
			called++
			runtime.Goexit()
		}}}
		n := newNotifier(&cfg)
		for range 3 {
			cfg.Hooks.NodeUp("a")
		}
		n.close(time.Minute)
		<-n.ended
		require.Equal(t, 3, called)
	})
}

// A saying is an error of the user's, whose text is made when it is asked for.
type saying struct{ text func() string }

func (s saying) Error() string { return s.text() }
func (s saying) Unwrap() error { return redis.Error("NOPERM") }

// The text of an error that Dial returned may be made by code that calls the client, or waits for who does.
func TestTheTextOfAnErrorOfTheUsersIsMadeUnderNoMutex(t *testing.T) {
	c, _ := leased(t)
	s, asked := c.waiters.subscribers[0], 0
	var free bool
	err := saying{func() string {
		asked++
		if free = s.mu.TryLock(); free {
			s.mu.Unlock()
		}
		return "no"
	}}
	s.missed(err)
	require.ErrorContains(t, s.refusal(), "no")
	require.Positive(t, asked)
	require.True(t, free)
}

// Who gets an error may change it, as by sorting the names for a log. Others use the lock meanwhile, and the answers.
func TestAnErrorSharesNothingWithTheLock(t *testing.T) {
	c, _ := leased(t)
	names := c.Mutex("b", "a").spec.res.names
	r := c.newRound(plan{call: call{script: c.protocol.acquire}})
	r.record(0, answer{vote: denied, denial: &denial{reason: slotTaken, free: []int{1, 2}}})
	for range 2 {
		refusal, denial := r.refusal(names, c.nodes), new(Denial)
		require.Equal(t, []string{"b", "a"}, refusal.Names)
		require.True(t, errors.As(refusal, &denial))
		require.Equal(t, []int{1, 2}, denial.Free)
		slices.Sort(refusal.Names)
		slices.Reverse(denial.Free)
	}
}
