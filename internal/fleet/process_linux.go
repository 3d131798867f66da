package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A spawner starts processes from one OS thread of its own. Pdeathsig has the kernel kill a child when the
// *thread* that forked it ends, not the process (see prctl(2), PR_SET_PDEATHSIG), and Go ends threads as
// it likes. This thread lives until close, when every child is dead, or until this process dies, however
// it dies; so no server outlives us.
type spawner struct {
	work chan func()
	done chan struct{} // closed when the goroutine has ended
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // and never unlocks, so the thread ends with the goroutine
		defer close(s.done)
		for do := range s.work {
			do()
		}
	}()
	return s
}

// start must not be called after close.
func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

func (s *spawner) close() {
	close(s.work)
	<-s.done
}

// setAttributes gives the server a process group of its own: a Ctrl-C at the terminal is for us, and what
// the server forks to write an RDB can be found.
func setAttributes(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the process and of what it forked. Until it is waited for, the dead process
// keeps its id, and with it the group's, from being given to another; so the kill cannot hit a stranger.
func reap(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // how it ended is of no interest: mostly by our signal
}

// pause returns when the process has stopped; SIGSTOP alone only asks for it.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("it ended: %w", err)
		default:
			return nil
		}
	}
}

func resume(p *os.Process) error    { return p.Signal(syscall.SIGCONT) }
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
