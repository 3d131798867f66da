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

// The kinds of fleets.
const (
	Embedded Kind = "embedded"
	Process  Kind = "process"
	Docker   Kind = "docker"
)

// Kinds lists all kinds, the cheapest first. Whether a program has them and can start them, [Available] says.
func Kinds() []Kind { return []Kind{Embedded, Process, Docker} }

// ErrUnsupported means that the fleet does not support a fault. Errors that wrap it name the fault, the fleet, and what
// would make it possible.
var ErrUnsupported = errors.New("fault not supported")

// Options describe the fleet. The zero value is five nodes without links.
type Options struct {
	Nodes  int       // number of nodes; 0 means 5
	Links  bool      // a TCP proxy in front of each node: slower, but Cut, CutReplies and Delay work on all kinds
	Args   []string  // more arguments of redis-server, such as "--appendonly", "yes" (process, docker)
	Unix   bool      // process: also listen on a unix socket, and use it for the URL
	Image  string    // docker: the image; "" means dockerfleet.DefaultImage, which says what happens without a registry
	Clocks bool      // the servers' wall clocks can be set: see [ClocksAvailable] (process, docker)
	Log    io.Writer // receives what the fleet does, line by line; nil: no log
}

// DefaultNodes is the number of nodes if [Options.Nodes] is 0.
const DefaultNodes = 5

// startTimeout is how long one node may take to answer PING, if the caller's context has no deadline.
const startTimeout = 30 * time.Second

func (o Options) validate(kind Kind) (Options, error) {
	if o.Nodes == 0 {
		o.Nodes = DefaultNodes
	}
	switch {
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

// A Fleet is the nodes that one call of Start has started. Its methods may be called concurrently.
type Fleet struct {
	kind     Kind
	options  Options
	nodes    []*Node
	launcher Launcher
	log      logger
	closing  context.Context // ends when Close begins, and ends every Start in progress
	close    func() error    // runs closeAll once
}

// Start starts o.Nodes empty nodes, and returns when all of them answer PING. Everything that it started has ended
// after [Fleet.Close], and after a failed Start. ctx bounds only Start.
func Start(ctx context.Context, kind Kind, o Options) (*Fleet, error) {
	driver, err := driverOf(kind)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if o, err = o.validate(kind); err != nil {
		return nil, err
	}
	closing, cancel := context.WithCancel(context.Background())
	f := &Fleet{kind: kind, options: o, log: newLogger(o.Log), closing: closing}
	f.close = sync.OnceValue(func() error {
		cancel()
		return f.closeAll()
	})
	if f.launcher, err = driver.Launch(ctx, o, f.log.printf); err != nil {
		cancel()
		return nil, fmt.Errorf("fleet: %s: %w", kind, err)
	}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("fleet: start %d %s nodes: %w", o.Nodes, kind, err), f.Close())
	}
	return f, nil
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

// each calls do concurrently for all nodes, and returns all errors.
func (f *Fleet) each(do func(*Node) error) error {
	errs := make([]error, len(f.nodes))
	var wg sync.WaitGroup
	for i, n := range f.nodes {
		wg.Go(func() { errs[i] = do(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Kind returns the kind of the fleet.
func (f *Fleet) Kind() Kind { return f.kind }

// Nodes returns the nodes in order. The caller may change the slice.
func (f *Fleet) Nodes() []*Node { return append([]*Node(nil), f.nodes...) }

// URLs returns the URLs of the nodes, in order.
func (f *Fleet) URLs() []string {
	urls := make([]string, len(f.nodes))
	for i, n := range f.nodes {
		urls[i] = n.URL()
	}
	return urls
}

// Heal ends Cut, CutReplies, Delay and Pause on all nodes. It does not start nodes.
func (f *Fleet) Heal() error {
	return f.each(func(n *Node) error { return errors.Join(n.Resume(), n.Heal()) })
}

// Close ends all nodes and removes everything that the fleet created: processes, containers, networks, files. It waits
// until they have ended. After that, nodes cannot be started. A second Close returns the result of the first.
func (f *Fleet) Close() error { return f.close() }

func (f *Fleet) closeAll() error {
	err := errors.Join(f.each((*Node).close), f.launcher.Close())
	f.log.printf("fleet: closed")
	return err
}

// unsupported names the fault, the fleet, and the remedy.
func (f *Fleet) unsupported(fault, instead string) error {
	return fmt.Errorf("%w: %s on a %s fleet; %s", ErrUnsupported, fault, f.kind, instead)
}

// Available returns nil if a fleet of the kind can be started on this machine, or an error that says what is missing
// and how to get it. It takes at most about two seconds.
func Available(kind Kind) error {
	driver, err := driverOf(kind)
	if err != nil {
		return err
	}
	return driver.Available()
}

// logger writes complete lines, one at a time. The zero value writes nothing.
type logger struct {
	mu *sync.Mutex // guards w; held for one Write
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
	_, _ = io.WriteString(l.w, line) // a failed log is no reason to fail
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
