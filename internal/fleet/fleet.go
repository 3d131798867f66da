package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Kind is a way to run nodes.
type Kind string

// The kinds there are.
const (
	Embedded Kind = "embedded"
	Process  Kind = "process"
	Docker   Kind = "docker"
)

// Kinds lists every kind, the cheapest first.
func Kinds() []Kind { return []Kind{Embedded, Process, Docker} }

// ErrUnsupported is wrapped by the error of a fault that this fleet cannot do. The error names the fault,
// the fleet, and what would make it possible.
var ErrUnsupported = errors.New("fault not supported")

// Options say what fleet to start. The zero value is five nodes without links.
type Options struct {
	Nodes  int       // how many; 0 means 5
	Links  bool      // a TCP proxy before each node: Cut, CutReplies and Delay on any kind; slower
	Args   []string  // more arguments to redis-server, as "--appendonly", "yes" (process, docker)
	Unix   bool      // process: listen on a unix socket too, and give that as the URL
	Image  string    // docker: the image; "" means [DefaultImage]. See there for what happens without a registry
	Clocks bool      // the servers' wall clocks can be set: see [ClocksAvailable] (process, docker)
	Log    io.Writer // told what the fleet does, a line each; nil: silent
}

// DefaultNodes is how many nodes a fleet has where [Options.Nodes] is 0.
const DefaultNodes = 5

const (
	startTimeout = 30 * time.Second // for one node to answer PING, where the caller's context has no end
	stopTimeout  = 10 * time.Second // for one node to go, in Stop without a deadline and in Close
)

func (o Options) validate(kind Kind) (Options, error) {
	if o.Nodes == 0 {
		o.Nodes = DefaultNodes
	}
	switch {
	case kind != Embedded && kind != Process && kind != Docker:
		return o, fmt.Errorf("fleet: %q is no kind of fleet; there are embedded, process and docker", kind)
	case o.Nodes < 0:
		return o, fmt.Errorf("fleet: Options.Nodes is %d; give at least 1", o.Nodes)
	case kind == Embedded && len(o.Args) > 0:
		return o, errors.New("fleet: Options.Args are for redis-server; the embedded fleet has none")
	case kind != Docker && o.Image != "":
		return o, fmt.Errorf("fleet: Options.Image is for the docker fleet, not for %s", kind)
	case kind == Embedded && o.Clocks:
		return o, fmt.Errorf("fleet: Options.Clocks: %w", ClocksAvailable(kind))
	case kind != Process && o.Unix:
		return o, fmt.Errorf("fleet: Options.Unix is for the process fleet, not for %s", kind)
	}
	return o, nil
}

// A Fleet is the nodes that one Start brought up. Its methods may be called concurrently.
type Fleet struct {
	kind     Kind
	options  Options
	nodes    []*Node
	launcher launcher
	log      logger
	closing  context.Context // ends when Close begins, and with it every Start under way
	close    func() error    // closeAll, once
}

// A launcher makes the backends of one kind and owns what they share.
type launcher interface {
	// node prepares a node and starts nothing yet. gone is called whenever its server has gone, by our
	// hand or its own, before the call that ended it returns.
	node(name string, gone func()) (backend, error)
	// close removes what is shared. It is called after every node's close, also after a failed start.
	close() error
}

// Start brings up o.Nodes empty nodes and returns when all of them answer PING. Everything it started is
// gone after [Fleet.Close], and after a Start that failed. ctx bounds Start alone.
func Start(ctx context.Context, kind Kind, o Options) (*Fleet, error) {
	o, err := o.validate(kind)
	if err != nil {
		return nil, err
	}
	closing, cancel := context.WithCancel(context.Background())
	f := &Fleet{kind: kind, options: o, log: newLogger(o.Log), closing: closing}
	f.close = sync.OnceValue(func() error {
		cancel()
		return f.closeAll()
	})
	if f.launcher, err = newLauncher(ctx, kind, o, f.log); err != nil {
		cancel()
		return nil, fmt.Errorf("fleet: %s: %w", kind, err)
	}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("fleet: start of %d %s nodes: %w", o.Nodes, kind, err), f.Close())
	}
	return f, nil
}

func newLauncher(ctx context.Context, kind Kind, o Options, log logger) (launcher, error) {
	switch kind {
	case Embedded:
		return embeddedLauncher{}, nil
	case Process:
		return newProcessLauncher(ctx, o)
	default:
		return newDockerLauncher(ctx, o, log)
	}
}

func (f *Fleet) start(ctx context.Context) error {
	for i := range f.options.Nodes {
		n, err := newNode(f, i)
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, n)
	}
	began := time.Now()
	err := f.each(func(n *Node) error { return n.Start(ctx, Empty) })
	if err == nil {
		f.log.printf("fleet: %d %s nodes up in %v", len(f.nodes), f.kind, time.Since(began).Round(time.Millisecond))
	}
	return err
}

// each calls do for every node at once and returns all errors.
func (f *Fleet) each(do func(*Node) error) error {
	errs := make([]error, len(f.nodes))
	var wg sync.WaitGroup
	for i, n := range f.nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = do(n)
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Kind returns what kind of fleet it is.
func (f *Fleet) Kind() Kind { return f.kind }

// Nodes returns the nodes in their order. The slice is the caller's own.
func (f *Fleet) Nodes() []*Node { return append([]*Node(nil), f.nodes...) }

// URLs returns the URL of each node in order.
func (f *Fleet) URLs() []string {
	urls := make([]string, len(f.nodes))
	for i, n := range f.nodes {
		urls[i] = n.URL()
	}
	return urls
}

// Heal ends every Cut, CutReplies, Delay and Pause of every node. It starts no node that is down.
func (f *Fleet) Heal() error {
	return f.each(func(n *Node) error { return errors.Join(n.Resume(), n.Heal()) })
}

// Close ends every node and removes what the fleet made: processes, containers, networks, files. It waits
// until they are gone. Nodes cannot be started any more. A second Close returns what the first returned.
func (f *Fleet) Close() error { return f.close() }

func (f *Fleet) closeAll() error {
	err := errors.Join(f.each((*Node).close), f.launcher.close())
	f.log.printf("fleet: closed")
	return err
}

// unsupported names the fault, the fleet, and the way out.
func (f *Fleet) unsupported(fault, instead string) error {
	return fmt.Errorf("%w: %s on a %s fleet; %s", ErrUnsupported, fault, f.kind, instead)
}

// Available says whether a fleet of the kind can be started on this machine: nil, or an error that says
// what is missing and how to get it. It answers within about two seconds.
func Available(kind Kind) error {
	switch kind {
	case Embedded:
		return nil
	case Process:
		_, err := findServer()
		return err
	case Docker:
		return dockerAvailable()
	}
	return fmt.Errorf("%q is no kind of fleet; there are embedded, process and docker", kind)
}

// logger writes whole lines, one at a time. The zero value is silent.
type logger struct {
	mu *sync.Mutex // guards w; nothing but one Write happens under it
	w  io.Writer
}

func newLogger(w io.Writer) logger { return logger{mu: new(sync.Mutex), w: w} }

func (l logger) printf(format string, args ...any) {
	if l.w == nil {
		return
	}
	line := strings.TrimRight(fmt.Sprintf(format, args...), "\n") + "\n"
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, line) // a log that cannot be written is no reason to fail
}

// bounded gives ctx an end where it has none.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
