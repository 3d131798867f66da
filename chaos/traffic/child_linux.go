package traffic

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func childAvailable() error { return nil }

// monotonic is the machine's clock that processes have in common, in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // Linux has it
	}
	return t.Nano()
}

// tieToUs has the kernel kill the child when the thread that started it ends, and keeps a Ctrl-C at the
// terminal from it: that one is for us.
func tieToUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stop halts this process, all threads of it, until somebody wakes it.
func stop() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// die ends this process without a chance to clean up.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

func wake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// awaitStop returns when the process has stopped.
func awaitStop(p *os.Process) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("the child ended: %w", err)
		default:
			return nil
		}
	}
}
