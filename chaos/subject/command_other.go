//go:build !unix

package subject

import "os/exec"

// Here only the program is killed, and not what it starts.

func setGroup(*exec.Cmd, bool)   {}
func reap(cmd *exec.Cmd, _ bool) { _ = cmd.Wait() }         // cmd.ProcessState has the result
func kill(cmd *exec.Cmd, _ bool) { _ = cmd.Process.Kill() } // it may have ended
