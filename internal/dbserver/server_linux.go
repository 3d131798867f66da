package dbserver

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

	"github.com/quorumlock/redlock/internal/required"
)

// patience bounds what takes about a second on a machine that is not busy.
const patience = 2 * time.Minute

// Find returns the path of a program that is on PATH or matches one of the patterns. Debian has neither server on the
// PATH of an ordinary user.
func Find(name string, patterns ...string) (string, error) {
	path, err := exec.LookPath(name)
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); err != nil && len(found) > 0 {
			return found[len(found)-1], nil // the newest
		}
	}
	return path, err
}

// A Home is a directory for one server, with its data and its socket. The servers refuse to run as root, so a test that
// is run by root gives the directory to nobody, and runs them as nobody.
type Home struct {
	Dir  string
	User *syscall.Credential // nil: the user of the test
}

// NewHome makes a directory that is removed when the test has ended.
func NewHome(t testing.TB) *Home {
	dir, err := os.MkdirTemp("", "fence-") // not t.TempDir: another user cannot enter it, and its path may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if os.Getuid() != 0 {
		return &Home{Dir: dir}
	}
	nobody, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(nobody.Gid)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, uid, gid))
	return &Home{dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// command returns a command that ends when this process does. SIGQUIT ends both kinds of servers at once, with all of
// their processes.
func (h *Home) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = h.Dir
	cmd.Env = append(os.Environ(), "HOME="+h.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.User, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// Run runs a command to its end.
func (h *Home) Run(t testing.TB, path string, args ...string) {
	cmd := h.command(path, args...)
	log, err := os.Create(filepath.Join(h.Dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, h.start(cmd)(), "%s", h.log())
}

// Serve starts a server, and stops it when the test has ended.
func (h *Home) Serve(t testing.TB, path string, args ...string) (dead <-chan struct{}) {
	cmd := h.command(path, args...)
	log, err := os.Create(filepath.Join(h.Dir, "log"))
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
func (h *Home) start(cmd *exec.Cmd) (wait func() error) {
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
func (h *Home) log() string {
	text, err := os.ReadFile(filepath.Join(h.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// AwaitReady waits until the server answers.
func (h *Home) AwaitReady(t testing.TB, db *sql.DB, dead <-chan struct{}) {
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

// Postgres starts a server, and returns the data source name of its database for pgx. It listens on a unix socket and on
// no port, so nobody can take its port, and nobody else can connect.
func Postgres(t testing.TB) (h *Home, source string, dead <-chan struct{}) {
	postgres, err := Find("postgres", "/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		required.Missing(t, "postgres", fmt.Errorf("no PostgreSQL: %w; install it (Debian: apt-get install postgresql)", err))
	}
	if real, err := filepath.EvalSymlinks(postgres); err == nil {
		postgres = real // initdb is beside it
	}
	h = NewHome(t)
	data := filepath.Join(h.Dir, "data")
	h.Run(t, filepath.Join(filepath.Dir(postgres), "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync",
		"--encoding=UTF8", "--locale=C")
	dead = h.Serve(t, postgres, "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+h.Dir,
		"-c", "fsync=off", "-c", "shared_buffers=16MB")
	return h, "host=" + h.Dir + " user=postgres dbname=postgres", dead
}
