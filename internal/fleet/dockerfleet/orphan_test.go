//go:build linux

package dockerfleet_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/dockerfleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// doomedKind, in the environment, makes this test binary start a fleet, print what it started, and wait until it is
// killed.
const doomedKind = "FLEET_TEST_DOOMED"

func TestMain(m *testing.M) {
	if kind := os.Getenv(doomedKind); kind != "" {
		f, err := fleet.Start(context.Background(), fleet.Kind(kind), fleet.Options{Nodes: 2})
		fmt.Println(err, strings.Join(f.URLs(), " "))
		select {}
	}
	verifyNoLeak(m)
}

// doom starts a fleet in another process, kills that process, and returns its id and the ids of the servers.
func doom(t *testing.T, kind fleet.Kind) (owner int, pids []int) {
	t.Helper()
	fleettest.Require(t, kind)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), doomedKind+"="+string(kind), "TMPDIR="+t.TempDir()) // a killed process does not clean up
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}()
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	words := strings.Fields(line)
	require.Equal(t, "<nil>", words[0], line)
	if kind == fleet.Docker {
		return cmd.Process.Pid, dockerfleet.PIDs(t, ownedBy(cmd.Process.Pid))
	}
	for _, url := range words[1:] {
		pids = append(pids, processID(t, url))
	}
	return cmd.Process.Pid, pids
}

// ownedBy is the label of what belongs to a process.
func ownedBy(pid int) string { return dockerfleet.LabelPID + "=" + strconv.Itoa(pid) }

func TestAServerDiesWithTheProcessThatStartedIt(t *testing.T) {
	// Orphaned processes become our children, so that we can wait for them. Some init processes do not reap zombies.
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	_, pids := doom(t, fleet.Process)
	require.Len(t, pids, 2)
	for _, pid := range pids {
		var status syscall.WaitStatus
		require.Eventually(t, func() bool {
			got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
			return err == nil && got == pid
		}, soon, time.Millisecond)
		assert.Equal(t, syscall.SIGKILL, status.Signal())
	}
}

func TestWhatADeadProcessLeftInTheEngineCanBeRemoved(t *testing.T) {
	mine := fleettest.Start(t, fleet.Docker, fleet.Options{Nodes: 1})
	owner, pids := doom(t, fleet.Docker)
	require.Len(t, dockerfleet.InEngine(t, ownedBy(owner)), 3, "two containers and a network")
	_, err := dockerfleet.RemoveLeftovers(ctx(t))
	require.NoError(t, err)
	assert.Empty(t, dockerfleet.InEngine(t, ownedBy(owner)))
	for _, pid := range pids {
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	assert.Equal(t, "PONG", do(t, mine.Nodes()[0], "PING"), "a running fleet is not touched")
}

func TestAPortIsOursWhileTheNodeIsDown(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		n := fleettest.Start(t, kind, fleet.Options{Nodes: 1}).Nodes()[0]
		require.NoError(t, n.Kill())
		_, at, _ := strings.Cut(n.URL(), "127.0.0.1:")
		port, err := strconv.Atoi(at)
		require.NoError(t, err)
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer syscall.Close(fd)
		assert.ErrorIs(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}), syscall.EADDRINUSE)
		require.NoError(t, n.Start(ctx(t), fleet.Empty))
	}
}

// A process that is being started has a copy of every file descriptor until it executes its program.
func TestADoorIsShutThoughAProcessIsJustBeingStarted(t *testing.T) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		}()
	}
	defer wg.Wait()
	defer close(stop)
	for _, links := range []bool{false, true} {
		n := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1, Links: links}).Nodes()[0]
		for range 300 {
			require.NoError(t, n.Kill())
			requireRefused(t, n)
			require.NoError(t, n.Start(ctx(t), fleet.Empty))
		}
	}
}
