// Package sleep has a sleep that a context can end.
package sleep

import (
	"context"
	"time"
)

// For sleeps for d. If ctx ends earlier, it returns its error at once.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
