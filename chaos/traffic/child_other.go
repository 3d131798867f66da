//go:build !linux

package traffic

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

var origin = time.Now()

func childAvailable() error {
	return fmt.Errorf("stopping or killing a client needs a separate process, which works on Linux only, not on %s", runtime.GOOS)
}

func monotonic() int64         { return int64(time.Since(origin)) }
func tieToUs(*exec.Cmd)        {}
func stop()                    {}
func die()                     { os.Exit(1) }
func wake(*os.Process) error   { return childAvailable() }
func kill(p *os.Process) error { return p.Kill() }
func reap(p *os.Process) *os.ProcessState {
	state, _ := p.Wait()
	return state
}
func awaitStop(*os.Process) error { return childAvailable() }
