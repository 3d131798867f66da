// Package server is what the servers of all kinds of fleets have in common: an address, a port that no other process
// takes while the server is down, and a clock that can be set. Package fleet uses it, and so does what adds a kind.
package server

import (
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// StopTimeout is how long a server may take to end.
const StopTimeout = 10 * time.Second

// StartTries is how often a start is tried if it fails with ErrPortTaken.
const StartTries = 5

// Errors of a start.
var (
	ErrDied      = errors.New("the server ended before it answered PING")
	ErrPortTaken = errors.New("another process has taken the port")
)

// OnPath finds redis-server. Containers are built from it: what REDLOCK_SERVER names may be a script.
func OnPath() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redis-server is not on PATH (%w); install it (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis), or use an embedded fleet", err)
	}
	return path, nil
}
