package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	"github.com/quorumlock/redlock/internal/fleet"
	_ "github.com/quorumlock/redlock/internal/fleet/dockerfleet" // for Options.Fleet
)

const (
	startPatience = 3 * time.Minute  // for a fleet, including building an image
	openPatience  = 30 * time.Second // for the clients' first locks
	maxCalm       = 3 * time.Second  // before the faults, and after them
)

// endPatience is for a subject to close its clients.
var endPatience = 15 * time.Second

// The names of the two locks: of the script, and of the traffic.
const (
	scriptLock  = "chaos/lock"
	trafficLock = "chaos/traffic"
)

// observedLocks are those whose keys are watched. A script may use more, too many to watch.
func observedLocks() []string { return []string{scriptLock, trafficLock} }

// A run is one scenario with one subject.
type run struct {
	Options
	play scenario.Scenario
	to   io.Writer // the history

	fleet  *fleet.Fleet
	site   *fault.Site
	log    *traffic.Log
	stage  *scenario.Stage
	actors []*traffic.Actor
	opened map[int]subject.Options // by client, to open it again
	others *traffic.Guarded        // what the traffic contends for
	fail   func(error)             // aborts the run: for subject.Options
	broken error                   // why the run was aborted
	ended  bool                    // the history has its end, so it can be judged
}

func (r *run) say(format string, args ...any) {
	if r.Log != nil {
		fmt.Fprintf(r.Log, format+"\n", args...)
	}
}

// whole is the complete run, from the start of the fleet to its end.
func (r *run) whole(ctx context.Context) (err error) {
	r.say("%s with %s: start of %d %s nodes", r.play.Name, r.Subject.Name(), r.Nodes, r.Fleet)
	starting, started := context.WithTimeout(ctx, startPatience)
	defer started()
	r.fleet, err = fleet.Start(starting, fleet.Kind(r.Fleet), fleet.Options{
		Nodes: r.Nodes + r.play.Spares(r.Nodes), Clocks: r.play.Needs.Clocks, Image: r.Image, Args: r.play.Needs.Args(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.fleet.Close()) }()
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r.fail = fail
	if err := r.prepare(running); err != nil {
		if ctx.Err() == nil && running.Err() != nil {
			return context.Cause(running) // err is what came of it
		}
		return err
	}
	// A history that ends without this note is that of a whole run.
	if r.broken = r.perform(running); r.broken != nil {
		r.log.Aborted(r.broken)
	}
	err = r.log.Close()
	r.ended = err == nil
	if r.broken != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return err
}

// prepare makes the site, the clients and the stage.
func (r *run) prepare(ctx context.Context) error {
	var names []string
	for _, n := range r.fleet.Nodes()[:r.Nodes] {
		names = append(names, n.Name())
	}
	r.log = traffic.NewLog(r.to, r.header(names))
	var err error
	if r.site, err = fault.NewSite(r.fleet, r.Nodes, r.tell); err != nil {
		return err
	}
	r.others = traffic.NewGuarded(trafficLock)
	r.stage = &scenario.Stage{
		Site: r.site, Log: r.log, TTL: r.TTL, Length: r.Length, Renews: subject.Renews(r.Subject),
		Rand: rand.New(rand.NewPCG(r.Seed, 0)), Lock: traffic.NewGuarded(scriptLock), Gap: new(scenario.Gap),
		Child: r.child, Close: r.closeClient, Reopen: r.reopen,
		Kind: subject.KindOf(r.Subject), Wants: scenario.Wants(subject.KindOf(r.Subject), r.Seed),
	}
	r.opened = map[int]subject.Options{}
	return r.open(ctx)
}

// tell records a fault and logs it. One that is recorded when it is over, as a restart, tells since when it took place.
func (r *run) tell(e history.Event, f fault.Fault, took time.Duration) {
	if took > 0 {
		e.Since = max(1, int64(r.log.Since()-took))
	}
	r.log.Add(e)
	how := ""
	if f.Lasts() && !e.Begin {
		how = "over: "
	}
	r.say("  %6.2fs  %s%v", r.log.Since().Seconds(), how, f)
}

// open opens the clients and lets each acquire a lock that no other client uses, so that all are connected before the
// first fault. Only the first client knows that the nodes are new.
func (r *run) open(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, openPatience)
	defer done()
	for id := 1; id <= r.Clients; id++ {
		options, err := r.options(id)
		if err != nil {
			return errors.Join(err, r.closeClients())
		}
		options.Fresh = id == 1
		client, err := r.openClient(ctx, options)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: open of client %d: %w", r.Subject.Name(), id, err), r.closeClients())
		}
		options.Fresh = false
		r.opened[id] = options
		r.actors = append(r.actors, traffic.NewActor(id, client, r.log))
	}
	for i, role := range []**traffic.Actor{&r.stage.A, &r.stage.B, &r.stage.C} {
		if i < r.play.Actors {
			*role = r.actors[i]
		}
	}
	errs := make([]error, len(r.actors))
	var wg sync.WaitGroup
	for i, a := range r.actors {
		wg.Go(func() { errs[i] = a.Warm(ctx, fmt.Sprintf("chaos/warm-%d", a.ID)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: the first locks, before any fault: %w", r.Subject.Name(), errors.Join(err, r.closeClients()))
	}
	return nil
}

// closeClient closes a client, like a process that exits normally, and records it.
func (r *run) closeClient(a *traffic.Actor) error {
	r.tellClient(a, "close")
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }() // ends with the subject
	select {
	case <-closed: // the error of the subject is ignored
		return nil
	case <-time.After(endPatience):
		return fmt.Errorf("client %d did not close within %v", a.ID, endPatience)
	}
}

// reopen gives an actor whose client was closed a new client with the same addresses.
func (r *run) reopen(ctx context.Context, a *traffic.Actor) error {
	ctx, done := context.WithTimeout(ctx, openPatience)
	defer done()
	client, err := r.openClient(ctx, r.opened[a.ID])
	if err != nil {
		return fmt.Errorf("%s: open of client %d: %w", r.Subject.Name(), a.ID, err)
	}
	r.tellClient(a, "reopen")
	a.Replace(client)
	return nil
}

func (r *run) tellClient(a *traffic.Actor, what string) {
	r.log.Add(history.Event{Kind: history.Fault, Client: a.ID, Fault: what})
	r.say("  %6.2fs  %s(client-%d)", r.log.Since().Seconds(), what, a.ID)
}

// openClient turns a panic into an error: a lock that cannot be opened cannot be judged.
func (r *run) openClient(ctx context.Context, o subject.Options) (client subject.Client, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the subject panicked: %v", value)
		}
	}()
	client, err = r.Subject.Open(ctx, o)
	if err == nil && client == nil {
		err = errors.New("the subject returned no client and no error")
	}
	return client, err
}

func (r *run) options(id int) (subject.Options, error) {
	urls, err := r.site.URLs(id)
	if err != nil {
		return subject.Options{}, err
	}
	o := subject.Options{
		Client: id, URLs: urls, TTL: r.TTL, Durable: r.play.Needs.Durable, Clock: r.site.Clock(id), Queued: r.log.Queued,
		Fail: r.fail,
	}
	if id == 1 && r.play.Actors > 0 {
		o.Step = r.stage.Gap.Step
	}
	return o, nil
}

// child starts client 1 as a separate process.
func (r *run) child() (*traffic.ChildActor, error) {
	urls, err := r.site.URLs(1)
	if err != nil {
		return nil, err
	}
	return traffic.StartChild(1, r.log, traffic.ChildSpec{Command: r.Child, Subject: r.Subject.Name(), URLs: urls, TTL: r.TTL, Durable: r.play.Needs.Durable})
}

// perform runs the script beside the traffic, and then lets everything end. Its error says why the run is not whole.
func (r *run) perform(ctx context.Context) error {
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	var observers, workers sync.WaitGroup
	observers.Go(func() {
		traffic.Observe(watching, r.log, r.site.Nodes(), observedLocks(), r.look)
	})
	working, stop := context.WithCancel(ctx)
	for _, a := range r.actors[r.play.Actors:] {
		source, pace := r.stage.Fork(), r.stage.Pace()
		pace.Peers = r.actors[r.play.Actors:]
		workers.Go(func() { a.Work(ctx, working, r.others, pace, source) })
	}
	err := r.script(ctx)
	stop()
	workers.Wait()
	err = errors.Join(err, r.closeClients())
	_ = r.stage.Sleep(context.WithoutCancel(ctx), 50*time.Millisecond) // so that the observers see the last releases
	unwatch()
	observers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// calmOf is how long a run is without faults at its beginning, and at its end.
func calmOf(length time.Duration) time.Duration { return min(length/5, maxCalm) }

// script runs the scenario, with some time without faults before and after it.
func (r *run) script(ctx context.Context) error {
	began := time.Now()
	calm := calmOf(r.Length)
	if r.Schedule == nil { // a schedule says itself when its faults begin
		if err := r.stage.Sleep(ctx, calm); err != nil {
			return err
		}
	}
	err := r.play.Play(ctx, r.stage)
	if err = errors.Join(err, r.site.HealAll(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	return r.stage.Sleep(ctx, max(calm, r.Length-time.Since(began)))
}

// look opens an observer's connection to the server that is now at the node's address.
func (r *run) look(ctx context.Context, node string) (redis.Conn, error) {
	n, err := r.site.Server(node)
	if err != nil {
		return nil, err
	}
	return n.DialDirect(ctx, traffic.ObserverPatience)
}

// closeClients closes all clients at once. Errors of the subject are ignored.
func (r *run) closeClients() error {
	closed := make(chan struct{})
	go func() { // ends with the subject, or with this process if the subject never returns
		defer close(closed)
		var wg sync.WaitGroup
		for _, a := range r.actors {
			wg.Go(func() { _ = a.Close() })
		}
		wg.Wait()
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(endPatience):
		return fmt.Errorf("%s: its clients did not close within %v", r.Subject.Name(), endPatience)
	}
}
