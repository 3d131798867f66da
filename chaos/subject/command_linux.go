package subject

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// setGroup gives the program its own process group: a Ctrl-C at the terminal does not reach it, and what it starts can be
// killed with it. The kernel kills the program if the thread that starts it ends, and so if this process is killed.
func setGroup(cmd *exec.Cmd, group bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the program, and kills what is left of its group. Until a dead process is waited for, its id
// and that of its group are not reused, so the kill cannot hit another process.
func reap(cmd *exec.Cmd, group bool) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if group {
		kill(cmd, group)
	}
	_ = cmd.Wait() // cmd.ProcessState has the result
}

func kill(cmd *exec.Cmd, group bool) {
	if !group {
		_ = cmd.Process.Kill() // it may have ended
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
