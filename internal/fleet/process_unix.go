//go:build unix && !linux

package fleet

import (
	"os"
	"os/exec"
	"syscall"
)

// A spawner starts processes. Only on Linux do they end with this process.
type spawner struct{}

func newSpawner() *spawner                 { return &spawner{} }
func (*spawner) start(cmd *exec.Cmd) error { return cmd.Start() }
func (*spawner) close()                    {}
func setAttributes(cmd *exec.Cmd)          { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
func reap(cmd *exec.Cmd)                   { _ = cmd.Wait() }
func pause(p *os.Process) error            { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error           { return p.Signal(syscall.SIGCONT) }
func terminate(p *os.Process) error        { return p.Signal(syscall.SIGTERM) }
