//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// guardCommand is the argument that makes this program a guard.
const guardCommand = "guard-run"

// A guard is a second process. It kills the command and its process group if redlock is killed: the kernel then closes
// redlock's end of the pipe that the guard reads from.
//
// On Linux the kernel kills the command itself (see dieWithUs), but not the processes that the command started.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
	sign string // "-" if a group is to be killed
}

// startGuard starts the guard, before there is a command to kill. It returns nil if no guard is needed, because the
// kernel does everything that a guard could do.
func startGuard(group bool) (*guard, error) {
	if !group && runtime.GOOS == "linux" {
		return nil, nil
	}
	self := "/proc/self/exe" // works even if the file was replaced or removed meanwhile
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	read, write, err := os.Pipe() // neither end is inherited by the command
	if err != nil {
		return nil, err
	}
	defer read.Close()
	g := &guard{cmd: exec.Command(self, guardCommand), pipe: write}
	if group {
		g.sign = "-"
	}
	g.cmd.Args[0] = os.Args[0]
	g.cmd.Stdin, g.cmd.Dir = read, "/"
	g.cmd.Env = []string{}                                 // no passwords
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to redlock's group or from its terminal do not end it
	if err := g.cmd.Start(); err != nil {
		write.Close()
		return nil, err
	}
	return g, nil
}

// watch sends the guard the process or group to kill.
func (g *guard) watch(pid int) {
	if g != nil {
		fmt.Fprintf(g.pipe, "%s%d\n", g.sign, pid)
	}
}

// stop ends the guard and waits for it. It kills the guard before it closes the pipe, so that the guard kills nothing.
func (g *guard) stop() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	g.pipe.Close()
}

// guardMain is the process of the guard. It waits for the end of the input, then kills what the last line names.
func guardMain(input io.Reader) {
	for _, sig := range forwarded {
		signal.Ignore(sig)
	}
	text, _ := io.ReadAll(input)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	pid, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil || pid == 0 || pid == -1 { // nothing was started
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
