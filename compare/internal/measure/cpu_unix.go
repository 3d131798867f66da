//go:build unix

package measure

import (
	"syscall"
	"time"
)

// cpuTime is the processor time of this process, of the user and of the system.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
