//go:build unix

package main_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/fleet/server"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "redlock-command-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "redlock")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	// Where a shell starts the tests in the background, or nohup does, they ignore these signals, and so would every
	// process that they start. A process that handles a signal starts others that do not ignore it.
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	// They wait more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// A process is a running redlock.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout output
	stderr *os.File // a file, so that Wait does not wait for a child of redlock that keeps it open
	cancel context.CancelFunc
}

// An output is what a process has printed so far.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs the binary for a bounded time. It has no terminal, even if the test has one.
func start(t *testing.T, stdin io.Reader, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, stdin, env, binary, args...)
}

// startProgram does the same with another program.
func startProgram(t *testing.T, stdin io.Reader, env []string, program string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	p := &process{t: t, cmd: exec.CommandContext(ctx, program, args...), cancel: cancel}
	var err error
	if p.stderr, err = os.Create(filepath.Join(t.TempDir(), "stderr")); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, &p.stdout, p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = noTerminal()
	for _, v := range os.Environ() {
		if !isOwnVariable(v) {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// isOwnVariable reports whether a line of the environment is about redlock, so that a test must not inherit it. The name
// of the server to test with is no such line.
func isOwnVariable(line string) bool {
	return strings.HasPrefix(line, "REDLOCK_") && !strings.HasPrefix(line, fleet.ServerVariable+"=")
}

// wait returns the exit code and the output.
func (p *process) wait() (code int, stdout, stderr string) {
	p.t.Helper()
	defer p.cancel()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Errorf("wait: %v", err)
	}
	p.stderr.Close()
	return p.cmd.ProcessState.ExitCode(), p.stdout.String(), p.said()
}

func (p *process) said() string {
	text, err := os.ReadFile(p.stderr.Name())
	if err != nil {
		p.t.Error(err)
	}
	return string(text)
}

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return start(t, nil, nil, args...).wait()
}

func nodes(f *fleet.Fleet) string { return "--nodes=" + strings.Join(f.URLs(), ",") }

// freePort is a port that nothing listens on, and that nothing takes but a server that is told to, until the test ends.
func freePort(t *testing.T) string {
	t.Helper()
	port, release, err := server.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return strconv.Itoa(port)
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 30*time.Second, what, ok)
}

func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout while waiting for %s", what)
		}
	}
}

func everyNode(t *testing.T, f *fleet.Fleet, do func(*fleet.Node) error) {
	t.Helper()
	for _, n := range f.Nodes() {
		if err := do(n); err != nil {
			t.Fatal(err)
		}
	}
}

// spread waits until every node has the lock: its first renewal takes it to those that the acquire did not ask.
func spread(t *testing.T, f *fleet.Fleet, key string) {
	t.Helper()
	everyNode(t, f, func(n *fleet.Node) error {
		eventually(t, "the lock on "+n.Name(), func() bool { return do(t, n, "GET", key) != nil })
		return nil
	})
}

// newClient is another client of the same nodes. It does not use their links.
func newClient(t *testing.T, f *fleet.Fleet) *redlock.Client {
	t.Helper()
	var urls []string
	for _, n := range f.Nodes() {
		urls = append(urls, n.DirectURL())
	}
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(urls...), NodeTimeout: 3 * time.Second}) // however busy the machine is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// startEnrolled starts nodes that are ready to grant.
func startEnrolled(t *testing.T, kind fleet.Kind, o fleet.Options) *fleet.Fleet {
	t.Helper()
	f := fleettest.Start(t, kind, o)
	if err := newClient(t, f).Enroll(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}
