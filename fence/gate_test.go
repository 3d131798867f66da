package fence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
)

func nothing() error { return nil }

func requireStale(t *testing.T, err error, resource string, token, highest uint64) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrStale)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fence.StaleError{Resource: resource, Token: token, Highest: highest}, *stale)
}

func TestASmallerTokenIsRefusedAndItsWorkDoesNotRun(t *testing.T) {
	ctx := t.Context()
	var g fence.Gate
	require.NoError(t, g.Do(ctx, "file", 33, nothing))
	require.NoError(t, g.Do(ctx, "file", 34, nothing))
	require.NoError(t, g.Do(ctx, "file", 34, nothing), "the same holder again")
	err := g.Do(ctx, "file", 33, func() error { t.Error("stale work runs"); return nil })
	requireStale(t, err, "file", 33, 34)
	requireStale(t, g.Check(ctx, "file", 33), "file", 33, 34)
	require.Equal(t, `fence: stale: "file" has seen the fencing token 34, and 33 is smaller: another holder came later`,
		err.Error())
	require.NoError(t, g.Do(ctx, "another file", 1, nothing), "another resource has tokens of its own")
}

func TestCheckStoresTheToken(t *testing.T) {
	var g fence.Gate
	require.NoError(t, g.Check(t.Context(), "file", 34))
	requireStale(t, g.Do(t.Context(), "file", 33, nothing), "file", 33, 34)
}

func TestTheErrorOfTheWorkIsReturnedAsItIs(t *testing.T) {
	var g fence.Gate
	broken := errors.New("broken")
	require.Equal(t, broken, g.Do(t.Context(), "file", 33, func() error { return broken }))
}

// wrongTokens are no fencing tokens. The largest fencing token is 2^53-1.
var wrongTokens = []uint64{0, 1 << 53, 1<<53 + 1, 1<<63 + 33, 1<<64 - 1}

func TestTheGateRefusesWhatIsNotAFencingToken(t *testing.T) {
	var g fence.Gate
	for _, token := range wrongTokens {
		err := g.Do(t.Context(), "file", token, func() error { t.Error("work runs"); return nil })
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.NotErrorIs(t, err, fence.ErrStale)
		require.ErrorIs(t, g.Check(t.Context(), "file", token), fence.ErrInvalid)
	}
	require.ErrorContains(t, g.Check(t.Context(), "file", 0), "NoFence")
	require.NoError(t, g.Check(t.Context(), "file", 1), "none of these was stored")
	require.NoError(t, g.Check(t.Context(), "file", 1<<53-1))
}

// Work under the larger token begins when that under the smaller one has ended. Nobody else comes in meanwhile.
func TestALargerTokenWaitsForTheWorkUnderASmallerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var g fence.Gate
		var order []string
		var wg sync.WaitGroup
		finish := make(chan struct{})
		wg.Go(func() {
			assert.NoError(t, g.Do(ctx, "file", 33, func() error {
				<-finish
				order = append(order, "33")
				return nil
			}))
		})
		synctest.Wait()
		wg.Go(func() {
			assert.NoError(t, g.Do(ctx, "file", 35, func() error { order = append(order, "35"); return nil }))
		})
		synctest.Wait()
		require.Empty(t, order)
		requireStale(t, g.Do(ctx, "file", 33, nothing), "file", 33, 35)
		requireStale(t, g.Do(ctx, "file", 34, nothing), "file", 34, 35)
		require.NoError(t, g.Do(ctx, "another file", 1, nothing), "other resources go on")
		close(finish)
		wg.Wait()
		require.Equal(t, []string{"33", "35"}, order)
	})
}

func TestCheckWaitsForTheWorkUnderASmallerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		var wg sync.WaitGroup
		finish := make(chan struct{})
		var finished, checked atomic.Bool
		wg.Go(func() {
			assert.NoError(t, g.Do(t.Context(), "file", 33, func() error { <-finish; finished.Store(true); return nil }))
		})
		synctest.Wait()
		wg.Go(func() {
			assert.NoError(t, g.Check(t.Context(), "file", 34))
			assert.True(t, finished.Load())
			checked.Store(true)
		})
		synctest.Wait()
		require.False(t, checked.Load())
		close(finish)
		wg.Wait()
		require.True(t, checked.Load())
	})
}

// While one waits, a third holder comes. The one that waits is refused.
func TestAWaitingTokenIsRefusedWhenALargerOneComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		var wg sync.WaitGroup
		finish := make(chan struct{})
		errs := map[uint64]error{}
		var mu sync.Mutex
		do := func(token uint64, work func() error) {
			wg.Go(func() {
				err := g.Do(t.Context(), "file", token, work)
				mu.Lock()
				defer mu.Unlock()
				errs[token] = err
			})
			synctest.Wait()
		}
		do(33, func() error { <-finish; return nil })
		do(34, func() error { t.Error("stale work runs"); return nil })
		do(35, nothing)
		close(finish)
		wg.Wait()
		require.NoError(t, errs[33])
		requireStale(t, errs[34], "file", 34, 35)
		require.NoError(t, errs[35])
	})
}

func TestWorkUnderOneTokenRunsAtTheSameTime(t *testing.T) {
	var g fence.Gate
	err := g.Do(t.Context(), "file", 33, func() error {
		return g.Do(t.Context(), "file", 33, nothing) // would not return if the first one kept it out
	})
	require.NoError(t, err)

	// The larger token waits for both.
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		var wg sync.WaitGroup
		finish := []chan struct{}{make(chan struct{}), make(chan struct{})}
		for _, finish := range finish {
			wg.Go(func() { assert.NoError(t, g.Do(t.Context(), "file", 33, func() error { <-finish; return nil })) })
		}
		synctest.Wait()
		var ran atomic.Bool
		wg.Go(func() { assert.NoError(t, g.Do(t.Context(), "file", 34, func() error { ran.Store(true); return nil })) })
		for _, finish := range finish {
			synctest.Wait()
			require.False(t, ran.Load())
			close(finish)
		}
		wg.Wait()
		require.True(t, ran.Load())
	})
}

func TestTheContextEndsTheWaitAndTheTokenStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		var wg sync.WaitGroup
		finish := make(chan struct{})
		wg.Go(func() { assert.NoError(t, g.Do(t.Context(), "file", 33, func() error { <-finish; return nil })) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Do(ctx, "file", 34, func() error { t.Error("work runs"); return nil })
		require.Equal(t, context.DeadlineExceeded, err)
		requireStale(t, g.Check(t.Context(), "file", 33), "file", 33, 34)
		close(finish)
		wg.Wait()
		require.NoError(t, g.Do(t.Context(), "file", 34, nothing))
	})
}

func TestWorkDoesNotRunAfterItsContextHasEnded(t *testing.T) {
	var g fence.Gate
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := g.Do(ctx, "file", 34, func() error { t.Error("work runs"); return nil })
	require.Equal(t, context.Canceled, err)
	require.NoError(t, g.Check(t.Context(), "file", 33), "it has left no token")
}

func TestWorkThatPanicsOrExitsLetsOthersIn(t *testing.T) {
	var g fence.Gate
	require.Panics(t, func() { _ = g.Do(t.Context(), "file", 33, func() error { panic("broken") }) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Do(t.Context(), "file", 34, func() error { runtime.Goexit(); return nil })
	}()
	<-done
	require.NoError(t, g.Do(t.Context(), "file", 35, nothing))
}

// Many holders at once, with tokens that arrive in no order. Work under two tokens never overlaps, tokens never
// decrease from one work to the next, and the largest token of all gets its turn.
func TestManyHoldersAtOnceNeverWorkUnderTwoTokens(t *testing.T) {
	for range 20 {
		var g fence.Gate
		var mu sync.Mutex // guards running and order
		running := map[uint64]int{}
		var order []uint64
		begin := func(token uint64) {
			mu.Lock()
			defer mu.Unlock()
			running[token]++
			assert.Len(t, running, 1, "work under two tokens")
			order = append(order, token)
		}
		end := func(token uint64) {
			mu.Lock()
			defer mu.Unlock()
			if running[token]--; running[token] == 0 {
				delete(running, token)
			}
		}
		var wg sync.WaitGroup
		for _, n := range rand.Perm(200) {
			token := uint64(n/2 + 1) // each twice
			wg.Go(func() {
				err := g.Do(t.Context(), "file", token, func() error {
					begin(token)
					runtime.Gosched()
					end(token)
					return nil
				})
				if err != nil {
					assert.ErrorIs(t, err, fence.ErrStale)
				}
			})
		}
		wg.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Equal(t, uint64(100), order[len(order)-1])
	}
}
