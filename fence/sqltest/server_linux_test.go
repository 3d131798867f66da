package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds what takes about a second on a machine that is not busy.
const patience = 2 * time.Minute

// find returns the path of a program that is on PATH or matches one of the patterns. Debian has neither server on the
// PATH of an ordinary user.
func find(name string, patterns ...string) (string, error) {
	path, err := exec.LookPath(name)
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); err != nil && len(found) > 0 {
			return found[len(found)-1], nil // the newest
		}
	}
	return path, err
}

// A home is a directory for one server, with its data and its socket. The servers refuse to run as root, so a test that
// is run by root gives the directory to nobody, and runs them as nobody.
type home struct {
	dir  string
	user *syscall.Credential // nil: the user of the test
}

func newHome(t *testing.T) *home {
	dir, err := os.MkdirTemp("", "fence-") // not t.TempDir: another user cannot enter it, and its path may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if os.Getuid() != 0 {
		return &home{dir: dir}
	}
	nobody, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(nobody.Gid)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, uid, gid))
	return &home{dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// command returns a command that ends when this process does. SIGQUIT ends both kinds of servers at once, with all of
// their processes.
func (h *home) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "HOME="+h.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.user, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// run runs a command to its end.
func (h *home) run(t *testing.T, path string, args ...string) {
	cmd := h.command(path, args...)
	log, err := os.Create(filepath.Join(h.dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, h.start(cmd)(), "%s", h.log())
}

// serve starts a server, and stops it when the test has ended.
func (h *home) serve(t *testing.T, path string, args ...string) (dead <-chan struct{}) {
	cmd := h.command(path, args...)
	log, err := os.Create(filepath.Join(h.dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	wait := h.start(cmd)
	if cmd.Process == nil {
		require.NoError(t, wait())
	}
	ended := make(chan struct{})
	go func() { // ends with the process, which the clean-up ends
		defer close(ended)
		_ = wait() // the exit status does not matter: usually it is our signal
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // it fails if the server has ended by itself
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("%s did not end: %s", path, h.log())
		}
	})
	return ended
}

// start starts the command on a thread that lives as long as the command: with Pdeathsig, the kernel ends a process with
// the thread that started it (prctl(2), PR_SET_PDEATHSIG). What it returns waits for the end of the command.
func (h *home) start(cmd *exec.Cmd) (wait func() error) {
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		err := cmd.Start()
		close(started)
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	<-started
	return func() error { return <-ended }
}

// log returns the end of the output.
func (h *home) log() string {
	text, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// awaitReady waits until the server answers.
func (h *home) awaitReady(t *testing.T, db *sql.DB, dead <-chan struct{}) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-dead:
			require.NoError(t, fmt.Errorf("the server has ended: %s", h.log()))
		case <-ctx.Done():
			require.NoError(t, err, "%s", h.log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
