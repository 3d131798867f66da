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

// A spawner starts all processes from one dedicated OS thread. With Pdeathsig the kernel kills a child when the
// *thread* that forked it ends, not the process (see prctl(2), PR_SET_PDEATHSIG), and the Go runtime may end a thread
// at any time. The dedicated thread lives until close, when all children have ended, or until this process dies for any
// reason. So no server outlives this process.
type spawner struct {
	work chan func()
	done chan struct{} // closed when the goroutine has ended
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
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

// setAttributes gives the server its own process group. So a Ctrl-C at the terminal does not reach it, and the
// processes that it forks to write an RDB can be found.
func setAttributes(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the process, and ends what it forked. Until a dead process is waited for, its id and the id
// of its group are not reused, so the kill cannot hit another process.
func reap(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // the exit status does not matter: usually it is our signal
}

// pause returns when the process has stopped. Signal returns earlier.
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
