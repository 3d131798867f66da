package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/internal/fleet/server"
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
	return server.OnPath()
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
		if l.shim, err = server.BuildShim(ctx, root); err != nil {
			return nil, errors.Join(fmt.Errorf("clock shim: %w", err), l.Close())
		}
	}
	return l, nil
}

// maxSocketPath is the shortest limit of all systems: macOS has 104, including the final zero.
const maxSocketPath = 103

func (l *processLauncher) Node(name string, gone func()) (Backend, error) {
	p := &process{launcher: l, dir: filepath.Join(l.root, name), gone: gone, release: func() {}}
	for _, dir := range []string{p.dir, p.data()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if l.shim != "" {
		if err := p.Clock().Set(0); err != nil {
			return nil, err
		}
	}
	return p, p.choosePort()
}

func (l *processLauncher) Close() error {
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
	port, release, err := server.Reserve()
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
func (p *process) Cutter() Cutter { return nil }

func (p *process) Clock() server.Clock {
	if p.launcher.shim == "" {
		return ""
	}
	return server.Clock(filepath.Join(p.dir, "clock"))
}

func (p *process) PeerAddress() (host, port string) { return "127.0.0.1", strconv.Itoa(p.port) }

func (p *process) Direct() server.Address { return p.Address() }

func (p *process) Address() server.Address {
	if p.launcher.options.Unix {
		return server.Unix(p.socket(), p.launcher.options.Args)
	}
	return server.TCP(p.port, p.launcher.options.Args)
}

func (p *process) Alive() bool {
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

func (p *process) Start(ctx context.Context, data Data) error {
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
		if !errors.Is(err, server.ErrPortTaken) || try == server.StartTries || ctx.Err() != nil {
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

func (p *process) startOnce(ctx context.Context) error {
	c, err := p.spawn()
	if err != nil {
		return err
	}
	p.running.Store(c)
	err = p.Address().AwaitPing(ctx, c.dead)
	if err == nil {
		return nil
	}
	output := p.lastOutput()
	if strings.Contains(output, "Address already in use") {
		err = fmt.Errorf("%w: %w", server.ErrPortTaken, err)
	}
	return errors.Join(fmt.Errorf("%w; output of %s:\n%s", err, p.launcher.server, output), p.Kill())
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
		c.cmd.Env = append(os.Environ(), "LD_PRELOAD="+shim, server.ClockVariable+"="+string(p.Clock()))
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

// Stop sends SIGTERM before SIGCONT, so that SIGTERM is pending when a paused server wakes up.
func (p *process) Stop(ctx context.Context) error {
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

// Kill needs no SIGCONT for a paused server. SIGKILL ends a stopped process without waking it, so it cannot execute
// requests that were sent during the pause.
func (p *process) Kill() error {
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
	case <-time.After(server.StopTimeout):
		return fmt.Errorf("pid %d did not end within %v of SIGKILL", c.cmd.Process.Pid, server.StopTimeout)
	}
}

func (p *process) Pause() error  { return pause(p.running.Load().cmd.Process) }
func (p *process) Resume() error { return ignoreDone(resume(p.running.Load().cmd.Process)) }

func (p *process) Save(ctx context.Context) error { return p.Address().Save(ctx) }

func (p *process) Close() error {
	err := p.Kill()
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
