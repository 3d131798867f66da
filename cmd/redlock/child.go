package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/quorumlock/redlock"
)

// longestSleep bounds the time between two looks at the lease: timers stand still while the machine is
// suspended, and a lease does not.
const longestSleep = time.Second

// A child is the command that runs under the lock.
type child struct {
	cmd   *exec.Cmd
	group bool          // it leads a process group of its own
	began chan error    // how its start went
	ended chan struct{} // closed when it was waited for
}

// startChild starts the command on an OS thread that lives until the command ended: on Linux the kernel
// kills the command when that thread ends (see prctl(2), PR_SET_PDEATHSIG), and Go ends threads as it likes.
func startChild(path string, argv, env []string) (*child, error) {
	cmd := exec.Command(path)
	cmd.Args = argv
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c := &child{cmd: cmd, group: !atTerminal(), began: make(chan error, 1), ended: make(chan struct{})}
	setAttributes(cmd, c.group)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(c.ended)
		err := cmd.Start()
		c.began <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
		}
	}()
	if err := <-c.began; err != nil {
		<-c.ended
		return nil, err
	}
	return c, nil
}

// underLease runs the command, and ends it before the lease does.
func (o *runOptions) underLease(lease *redlock.Lease, signals <-chan os.Signal) (code int, reason string, err error) {
	c, err := startChild(o.path, o.argv, environment(lease))
	if err != nil {
		return exitNotExecutable, "failed", fmt.Errorf("%q cannot be executed: %w", o.argv[0], err)
	}
	lost := lease.Context()
	keep := o.killAfter + margin(o.ttl) // the command is told to end when this much is left
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ended:
			if !lease.Valid() {
				// As after a suspend: it ended, but perhaps not in time.
				if c.groupAlive() {
					c.kill()
				}
				return exitLost, "lost", fmt.Errorf("the lease was lost before the command ended (%s)", describe(c.cmd.ProcessState))
			}
			code, reason = exitOf(c.cmd.ProcessState)
			return code, reason, nil
		case s := <-signals:
			c.forward(s.(syscall.Signal))
			continue
		case <-lost.Done():
		case <-timer.C:
		}
		left := lease.Remaining() - keep
		if left <= 0 {
			return exitLost, "lost", c.end(lease, o.killAfter, margin(o.ttl))
		}
		timer.Reset(min(left, longestSleep))
	}
}

// end ends the command: TERM, and KILL after grace, or earlier where the lease has less left than grace and
// the margin. There is no way back: a renewal that succeeds now comes too late.
func (c *child) end(lease *redlock.Lease, grace, margin time.Duration) error {
	left := lease.Remaining()
	told := time.Now()
	if left > margin {
		c.terminate()
	}
	lost := lease.Context()
	timer := time.NewTimer(min(grace, left-margin))
	defer timer.Stop()
	ended := c.ended
	var poll <-chan time.Time // the command ended; what it left in its group may still run
	how := ""
wait:
	for {
		select {
		case <-ended:
			ended = nil
			how = "it ended by itself after TERM"
			if !c.groupAlive() {
				break wait
			}
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			poll = ticker.C
		case <-poll:
			if !c.groupAlive() {
				break wait
			}
		case <-lost.Done():
			c.kill()
			break wait
		case <-timer.C:
			c.kill()
			break wait
		}
	}
	if ended != nil {
		<-ended
		how = "killed"
	}
	return fmt.Errorf("lease lost: it could not be renewed, %v were left; the command was told to end, and ended %v later (%s, %s)",
		left.Round(time.Millisecond), time.Since(told).Round(time.Millisecond), how, describe(c.cmd.ProcessState))
}
