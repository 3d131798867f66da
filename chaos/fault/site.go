package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A Site is a fleet as its clients see it. It has N addresses with one server each, and every client has its own way to
// each address. A Site applies faults and records them. Its methods may be called concurrently.
type Site struct {
	fleet  *fleet.Fleet
	places []*place
	record func(e history.Event, f Fault, took time.Duration)

	mu     sync.Mutex            // guards the rest, and that faults are applied one at a time
	spares []*fleet.Node         // running servers without an address
	active []Fault               // faults that have begun and not healed, in order
	clocks map[int]*atomic.Int64 // how far each client's wall clock is ahead, nanoseconds
}

// A place is one address.
type place struct {
	name    string
	server  atomic.Pointer[fleet.Node] // the server that is there now
	replica *replica                   // of the server; nil: none
	mode    mode                       // of the ways of all clients
	delay   time.Duration
	ways    []*way
	killing *killing // of its subscriptions; nil: they are not killed
}

// A way is the connection path from one client to one place.
type way struct {
	view   *fleet.View
	client int
	mode   mode
	delay  time.Duration
}

// A mode is what a way lets through. The largest one takes precedence.
type mode int

const (
	flowing mode = iota
	noReplies
	nothing
)

// NewSite makes the first n nodes of the fleet the addresses; the others are spare. record is called for every fault,
// before it begins and after it has healed.
func NewSite(f *fleet.Fleet, n int, record func(e history.Event, f Fault, took time.Duration)) (*Site, error) {
	nodes := f.Nodes()
	if n < 1 || n > len(nodes) {
		return nil, fmt.Errorf("%d addresses need at least as many nodes; the fleet has %d", n, len(nodes))
	}
	s := &Site{fleet: f, record: record, spares: nodes[n:], clocks: map[int]*atomic.Int64{}}
	for _, node := range nodes[:n] {
		p := &place{name: node.Name()}
		p.server.Store(node)
		s.places = append(s.places, p)
	}
	return s, nil
}

// Nodes returns the names of the addresses, in order.
func (s *Site) Nodes() []string {
	var names []string
	for _, p := range s.places {
		names = append(names, p.name)
	}
	return names
}

// Server returns the server that is now at the address.
func (s *Site) Server(node string) (*fleet.Node, error) {
	p, err := s.place(node)
	if err != nil {
		return nil, err
	}
	return p.server.Load(), nil
}

func (s *Site) place(node string) (*place, error) {
	for _, p := range s.places {
		if p.name == node {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no %q; there are %v", node, s.Nodes())
}

// URLs opens the client's own ways and returns their URLs. Call it once per client.
func (s *Site) URLs(client int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var urls []string
	for _, p := range s.places {
		view, err := p.server.Load().NewView()
		if err != nil {
			return nil, err
		}
		w := &way{view: view, client: client}
		p.ways = append(p.ways, w)
		p.set(w)
		urls = append(urls, view.URL())
	}
	return urls, nil
}

// Clock returns how far the client's wall clock is ahead.
func (s *Site) Clock(client int) func() time.Duration {
	clock := s.clock(client)
	return func() time.Duration { return time.Duration(clock.Load()) }
}

func (s *Site) clock(client int) *atomic.Int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clocks[client] == nil {
		s.clocks[client] = new(atomic.Int64)
	}
	return s.clocks[client]
}

// set applies the modes and delays of the way and of its place.
func (p *place) set(w *way) {
	switch max(p.mode, w.mode) {
	case nothing:
		w.view.Cut()
	case noReplies:
		w.view.CutReplies()
	default:
		w.view.Heal()
	}
	w.view.Delay(p.delay + w.delay)
}

// Begin applies the fault, and returns when it is in effect. A fault that lasts ends with Heal.
func (s *Site) Begin(ctx context.Context, f Fault) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	if f.Lasts() {
		s.report(f, true, 0) // before it can have an effect
	}
	began := time.Now()
	if err := s.change(ctx, f, true); err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	if !f.Lasts() {
		s.report(f, false, time.Since(began))
		return nil
	}
	s.mu.Lock()
	s.active = append(s.active, f)
	s.mu.Unlock()
	return nil
}

// Heal ends the fault.
func (s *Site) Heal(ctx context.Context, f Fault) error {
	s.mu.Lock()
	found := false
	for i, a := range s.active {
		if a == f {
			s.active = append(s.active[:i:i], s.active[i+1:]...)
			found = true
			break
		}
	}
	s.mu.Unlock()
	if !found {
		return nil
	}
	err := s.change(ctx, f, false)
	s.report(f, false, 0)
	if err != nil {
		return fmt.Errorf("heal %v: %w", f, err)
	}
	return nil
}

// HealAll ends all active faults, the last one first.
func (s *Site) HealAll(ctx context.Context) error {
	var errs []error
	for {
		s.mu.Lock()
		if len(s.active) == 0 {
			s.mu.Unlock()
			return errors.Join(errs...)
		}
		last := s.active[len(s.active)-1]
		s.mu.Unlock()
		errs = append(errs, s.Heal(ctx, last))
	}
}

func (s *Site) report(f Fault, begin bool, took time.Duration) {
	// By is part of the name, so that people see it and two delays can be distinguished.
	name := string(f.Verb)
	if f.By > 0 && f.Verb != Delay {
		name += "+"
	}
	if f.By != 0 {
		name += f.By.String()
	}
	s.record(history.Event{Kind: history.Fault, Node: f.Node, Client: f.Client, Fault: name, Begin: begin}, f, took)
}
