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

// guardCommand is the argument with which this program is the process that a guard stands for.
const guardCommand = "guard-run"

// A guard is a second process that kills the command, and its process group, if we are killed: the kernel then
// closes our end of the pipe that it reads from.
//
// On Linux the kernel kills the command itself (see dieWithUs), but not what the command started.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
	sign string // of what is killed: "-" for a group
}

// startGuard starts the guard before there is anything to kill. It is nil, and no guard is needed, where the
// kernel does all that could be done.
func startGuard(group bool) (*guard, error) {
	if !group && runtime.GOOS == "linux" {
		return nil, nil
	}
	self := "/proc/self/exe" // also where the file was replaced or removed meanwhile
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
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal to our group, nor of our terminal, ends it
	if err := g.cmd.Start(); err != nil {
		write.Close()
		return nil, err
	}
	return g, nil
}

// watch tells the guard what to kill.
func (g *guard) watch(pid int) {
	if g != nil {
		fmt.Fprintf(g.pipe, "%s%d\n", g.sign, pid)
	}
}

// stop ends the guard, and waits for it. It is killed before the pipe is closed, so that it kills nothing.
func (g *guard) stop() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	g.pipe.Close()
}

// guardMain is the guard's process: it waits for the end of the input, and kills what the last line names.
func guardMain(input io.Reader) {
	for _, sig := range forwarded {
		signal.Ignore(sig)
	}
	text, _ := io.ReadAll(input)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	pid, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil || pid == 0 || pid == -1 { // nothing was started yet
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
