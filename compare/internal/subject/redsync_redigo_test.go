package subject

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPoolClosesWhileACallWithAnEndedContextWaits(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		pool, closePool, err := openRedigo("redis://127.0.0.1:1", Options{Goroutines: 1})
		require.NoError(t, err)
		got := make(chan error, 8)
		for range cap(got) {
			go func() {
				_, err := pool.Get(ended)
				got <- err
			}()
		}
		require.NoError(t, closePool())
		for range cap(got) {
			require.Error(t, <-got)
		}
	}
}
