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

// stop stops all threads of this process, and the processes of its group, until SIGCONT.
func stop() { _ = syscall.Kill(0, syscall.SIGSTOP) }

// die kills this process and its group, without a chance to clean up.
func die() {
	_ = syscall.Kill(0, syscall.SIGKILL)
	select {} // until the signal arrives
}

// wake and kill are for the process and its group, for as long as the process was not waited for.
func wake(p *os.Process) error { return signalGroup(p, syscall.SIGCONT) }
func kill(p *os.Process) error { return signalGroup(p, syscall.SIGKILL) }

func signalGroup(p *os.Process, sig syscall.Signal) error {
	if err := p.Signal(syscall.Signal(0)); err != nil { // it was waited for: another group may have its id
		return err
	}
	return syscall.Kill(-p.Pid, sig)
}

// reap waits for the end of the process, says how it ended, and kills what is left of its group. Until it is waited for,
// its id is not reused.
func reap(p *os.Process) *os.ProcessState {
	for errors.Is(unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	state, _ := p.Wait() // not cmd.Wait, which would close the pipe while it is read
	return state
}

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
