package redlock

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// T1, W1: What refused the caller that is ahead explains why the others wait, until one of them has the lock.
func TestWhatRefusedTheOneAheadExplainsTheWaitUntilOneHasTheLock(t *testing.T) {
	for _, won := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var l localQueues
			name, refused := queueKey{names: "x"}, new(round)
			want := refused
			if won {
				want = nil
			}
			ended, end := context.WithCancel(t.Context())
			end()
			_, _, err := l.join(t.Context(), name, nil)
			require.NoError(t, err)
			l.wasRefused(name, refused)
			turn := make(chan struct{})
			go func() {
				defer close(turn)
				_, told, err := l.join(t.Context(), name, nil)
				assert.NoError(t, err)
				assert.Same(t, want, told)
			}()
			synctest.Wait()
			_, told, err := l.join(ended, name, nil)
			require.ErrorIs(t, err, context.Canceled)
			require.Same(t, refused, told)

			l.leave(name, won)
			<-turn
			_, told, err = l.join(ended, name, nil)
			require.ErrorIs(t, err, context.Canceled)
			require.Same(t, want, told)
			l.leave(name, false)
			require.Empty(t, l.byName)
		})
	}
}
