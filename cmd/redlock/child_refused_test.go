//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A command that runs as another user, as under sudo, gets no signal from redlock. That is said at once, and not that it was
// killed.
func TestACommandThatCannotBeKilledIsSaidToGoOn(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	allowed := killProcess
	defer func() { killProcess = allowed }()
	for _, signalled := range []bool{true, false} {
		c, err := startChild(sleep, []string{"sleep", "60"}, nil, nil, newPauser(), func() error { return nil })
		require.NoError(t, err)
		c.group = true
		killProcess = func(int, syscall.Signal) error { return syscall.EPERM }
		// It goes on, so redlock must not stop: somebody has to renew the lease.
		require.ErrorIs(t, c.pause(func() bool { panic("it did not stop") }), syscall.EPERM)
		warned, how := make(chan string, 2), make(chan string, 1)
		in := &inbox{signals: make(chan os.Signal, 1)}
		go func() {
			how <- c.end(nil, in, time.Minute, time.Millisecond, func(err error, what string) {
				if err != nil {
					warned <- what + ": " + err.Error()
				}
			})
		}()
		require.Equal(t, cannotEnd+": operation not permitted", <-warned)
		select {
		case text := <-how:
			t.Fatal("it waits for the command: ", text)
		default:
		}
		if signalled {
			in.signals <- syscall.SIGTERM
			require.Contains(t, <-how, "still runs: it could not be killed (operation not permitted)")
			require.NotNil(t, in.stop)
		}
		require.NoError(t, c.cmd.Process.Kill())
		<-c.ended
		if !signalled {
			require.Contains(t, <-how, "it could not be killed: operation not permitted")
		}
		c.guard.stop()
	}
	require.Error(t, refusal(syscall.EPERM))
	require.NoError(t, errors.Join(refusal(syscall.ESRCH), refusal(os.ErrProcessDone), refusal(nil)))
}

// The command has ended, and another process of its group cannot be killed, because it runs as another user (sudo). "One that
// cannot be killed it awaits, until a signal comes."
func TestTheRestOfAGroupThatCannotBeKilledIsAwaited(t *testing.T) {
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	c, err := startChild(bash, []string{"bash", "-c", "sleep 60 & exit 0"}, nil, nil, newPauser(), func() error { return nil })
	require.NoError(t, err)
	c.group = true
	<-c.ended
	group := -c.cmd.Process.Pid
	defer syscall.Kill(group, syscall.SIGKILL)
	allowed := killProcess
	killProcess = func(pid int, sig syscall.Signal) error {
		if pid > 0 {
			return allowed(pid, sig)
		}
		return syscall.EPERM
	}
	defer func() { killProcess = allowed }()
	require.True(t, c.groupAlive())
	in := &inbox{signals: make(chan os.Signal, 1)}
	how, warned := make(chan string, 1), make(chan string, 2)
	go func() {
		how <- c.end(nil, in, time.Minute, time.Millisecond, func(err error, what string) {
			if err != nil {
				warned <- what
			}
		})
	}()
	require.Equal(t, cannotEnd, <-warned)
	select {
	case text := <-how:
		t.Fatal("it waits for the rest of the group: ", text)
	default:
	}
	in.signals <- syscall.SIGTERM
	require.Equal(t, "had ended (exit code 0), and the rest of its process group was told to end, and still runs: it could not be killed", <-how)
	c.guard.stop()
}
