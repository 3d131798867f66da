package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ServerVariable is the environment variable with the path of the server that processes are started from, instead of
// the redis-server on PATH: another version, or another program that takes the arguments of redis-server.
const ServerVariable = "REDLOCK_SERVER"

// Server is the path of the server that processes are started from, or an error that says how to get one.
func Server() (string, error) {
	if path := os.Getenv(ServerVariable); path != "" {
		found, err := exec.LookPath(path)
		if err == nil {
			found, err = filepath.Abs(found) // nodes have a working directory of their own
		}
		if err != nil {
			return "", fmt.Errorf("%s=%s: %w; give the path of a server, or unset it", ServerVariable, path, err)
		}
		return found, nil
	}
	return serverOnPath()
}

// serverOnPath finds redis-server. Containers are built from it: what REDLOCK_SERVER names may be a script.
func serverOnPath() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redis-server is not on PATH (%w); install it (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis), or use an embedded fleet", err)
	}
	return path, nil
}

type processLauncher struct {
	server  string
	options Options
	root    string // temporary directory, with one subdirectory per node
	shim    string // library that changes clocks; "" without Options.Clocks
	spawner *spawner
}

func newProcessLauncher(ctx context.Context, o Options) (*processLauncher, error) {
	path, err := Server()
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		return nil, err
	}
	if o.Unix && len(filepath.Join(root, "node-99", "redis.sock")) > maxSocketPath {
		return nil, errors.Join(fmt.Errorf("%s is too long for the path of a unix socket; set TMPDIR to a shorter path", root), os.RemoveAll(root))
	}
	l := &processLauncher{server: path, options: o, root: root, spawner: newSpawner()}
	if o.Clocks {
		if l.shim, err = buildShim(ctx, root); err != nil {
			return nil, errors.Join(fmt.Errorf("clock shim: %w", err), l.close())
		}
	}
	return l, nil
}

// maxSocketPath is the shortest limit of all systems: macOS has 104, including the final zero.
const maxSocketPath = 103

func (l *processLauncher) node(name string, gone func()) (backend, error) {
	p := &process{launcher: l, dir: filepath.Join(l.root, name), gone: gone, release: func() {}}
	for _, dir := range []string{p.dir, p.data()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if l.shim != "" {
		if err := p.clock().set(0); err != nil {
			return nil, err
		}
	}
	return p, p.choosePort()
}

func (l *processLauncher) close() error {
	l.spawner.close()
	return os.RemoveAll(l.root)
}

// process is a redis-server process.
type process struct {
	launcher *processLauncher
	dir      string // <root>/<name>: data/, log, redis.sock
	gone     func()
	port     int
	release  func()
	started  bool // it has started once, so the port is fixed

	running atomic.Pointer[child]
}

// A child is one run of the node: a process, and one goroutine that waits for its end.
type child struct {
	cmd  *exec.Cmd
	dead chan struct{} // closed when it was reaped, its own children have ended, and gone was called
}

func (p *process) choosePort() error {
	p.release()
	port, release, err := reserve()
	if err != nil {
		p.release = func() {}
		return err
	}
	p.port, p.release = port, release
	return nil
}

func (p *process) data() string   { return filepath.Join(p.dir, "data") }
func (p *process) log() string    { return filepath.Join(p.dir, "log") }
func (p *process) socket() string { return filepath.Join(p.dir, "redis.sock") }
func (p *process) cutter() cutter { return nil }

func (p *process) clock() clockFile {
	if p.launcher.shim == "" {
		return ""
	}
	return clockFile(filepath.Join(p.dir, "clock"))
}

func (p *process) peerAddress() (host, port string) { return "127.0.0.1", strconv.Itoa(p.port) }

func (p *process) truth() address { return p.address() }

func (p *process) address() address {
	password := passwordOf(p.launcher.options.Args)
	if p.launcher.options.Unix {
		return address{network: "unix", at: p.socket(), password: password}
	}
	return address{network: "tcp", at: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)), password: password}
}

func (p *process) alive() bool {
	c := p.running.Load()
	if c == nil {
		return false
	}
	select {
	case <-c.dead:
		return false
	default:
		return true
	}
}

// startTries is how often a start is tried if another process has taken the port.
const startTries = 5

func (p *process) start(ctx context.Context, data Data) error {
	if data == Empty {
		if err := errors.Join(os.RemoveAll(p.data()), os.Mkdir(p.data(), 0o700)); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		err := p.startOnce(ctx)
		if err == nil {
			p.started = true
			return nil
		}
		if !errors.Is(err, errPortTaken) || try == startTries || ctx.Err() != nil {
			return err
		}
		if !p.started {
			if err := p.choosePort(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * 50 * time.Millisecond):
		}
	}
}

var errPortTaken = errors.New("another process has taken the port")

func (p *process) startOnce(ctx context.Context) error {
	c, err := p.spawn()
	if err != nil {
		return err
	}
	p.running.Store(c)
	err = p.address().awaitPing(ctx, c.dead)
	if err == nil {
		return nil
	}
	output := p.lastOutput()
	if strings.Contains(output, "Address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return errors.Join(fmt.Errorf("%w; output of %s:\n%s", err, p.launcher.server, output), p.kill())
}

func (p *process) arguments() []string {
	args := []string{
		"--port", strconv.Itoa(p.port), "--bind", "127.0.0.1", "--dir", p.data(), "--daemonize", "no",
		"--save", "", "--appendonly", "no",
	}
	if p.launcher.options.Unix {
		args = append(args, "--unixsocket", p.socket())
	}
	return append(args, p.launcher.options.Args...) // the last argument with a name counts
}

func (p *process) spawn() (*child, error) {
	log, err := os.Create(p.log())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &child{cmd: exec.Command(p.launcher.server, p.arguments()...), dead: make(chan struct{})}
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = p.data(), log, log // a file, so that no goroutine has to copy
	if shim := p.launcher.shim; shim != "" {
		c.cmd.Env = append(os.Environ(), "LD_PRELOAD="+shim, clockVariable+"="+string(p.clock()))
	}
	setAttributes(c.cmd)
	if err := p.launcher.spawner.start(c.cmd); err != nil {
		return nil, err
	}
	go func() { // ends with the process, which close kills
		defer close(c.dead)
		reap(c.cmd)
		p.gone()
	}()
	return c, nil
}

// lastOutput returns the end of the server's output.
func (p *process) lastOutput() string {
	log, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return "  " + strings.ReplaceAll(string(log[max(0, len(log)-1000):]), "\n", "\n  ")
}

// stop sends SIGTERM before SIGCONT, so that SIGTERM is pending when a paused server wakes up.
func (p *process) stop(ctx context.Context) error {
	c := p.running.Load()
	err := errors.Join(ignoreDone(terminate(c.cmd.Process)), ignoreDone(resume(c.cmd.Process)))
	if err != nil {
		return err
	}
	select {
	case <-c.dead:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pid %d did not end: %w", c.cmd.Process.Pid, context.Cause(ctx))
	}
}

// kill needs no SIGCONT for a paused server. SIGKILL ends a stopped process without waking it, so it cannot execute
// requests that were sent during the pause.
func (p *process) kill() error {
	c := p.running.Load()
	if c == nil {
		return nil
	}
	if err := ignoreDone(c.cmd.Process.Kill()); err != nil {
		return err
	}
	select {
	case <-c.dead:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("pid %d did not end within %v of SIGKILL", c.cmd.Process.Pid, stopTimeout)
	}
}

func (p *process) pause() error  { return pause(p.running.Load().cmd.Process) }
func (p *process) resume() error { return ignoreDone(resume(p.running.Load().cmd.Process)) }

func (p *process) save(ctx context.Context) error { return saveAt(ctx, p.address()) }

func (p *process) close() error {
	err := p.kill()
	p.release()
	return err
}

// ignoreDone ignores the error that the process has already ended.
func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// saveAt makes the server write its RDB.
func saveAt(ctx context.Context, at address) error {
	conn, err := at.dial(ctx, stopTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do("SAVE")
	return err
}
