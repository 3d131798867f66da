//go:build unix && !linux

package subject

import (
	"os/exec"
	"syscall"
)

// setGroup gives the program its own process group: a Ctrl-C at the terminal does not reach it, and what it starts can be
// killed with it. If this process is killed, the program's input ends.
func setGroup(cmd *exec.Cmd, group bool) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group} }

func reap(cmd *exec.Cmd, group bool) {
	_ = cmd.Wait() // cmd.ProcessState has the result
	if group {
		kill(cmd, group)
	}
}

func kill(cmd *exec.Cmd, group bool) {
	if !group {
		_ = cmd.Process.Kill() // it may have ended
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
