//go:build !linux

package redlock

import "time"

// bootTime does not exist here. After a suspend, a lease may count as valid for too long.
func bootTime() (time.Duration, bool) { return 0, false }
