package fleet

import (
	"fmt"
	"os"
	"os/exec"
)

// A spawner starts processes. Only on Linux do they end with this process.
type spawner struct{}

func newSpawner() *spawner                 { return &spawner{} }
func (*spawner) start(cmd *exec.Cmd) error { return cmd.Start() }
func (*spawner) close()                    {}
func setAttributes(*exec.Cmd)              {}
func reap(cmd *exec.Cmd)                   { _ = cmd.Wait() }

func pause(*os.Process) error {
	return fmt.Errorf("%w: pause on a process fleet on Windows; use a docker fleet", ErrUnsupported)
}

func resume(*os.Process) error {
	return fmt.Errorf("%w: resume on a process fleet on Windows; use a docker fleet", ErrUnsupported)
}

func terminate(p *os.Process) error { return p.Kill() }
