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

// monotonic returns the time of the machine's monotonic clock in nanoseconds. All processes share it.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // cannot happen on Linux
	}
	return t.Nano()
}

// tieToUs makes the kernel kill the child when the thread that started it ends. It also gives the child its own process
// group, so that a Ctrl-C at the terminal reaches only this process.
func tieToUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stop stops all threads of this process until SIGCONT.
func stop() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// die kills this process, without a chance to clean up.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
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
