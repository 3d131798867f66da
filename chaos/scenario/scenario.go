// Package scenario contains the scenarios in which locks are tested. Each scenario proves one sentence.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/redlock/chaos/traffic"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A Scenario is a sequence of faults, and clients that try to exploit them.
type Scenario struct {
	Name   string   `json:"name"`
	Short  string   `json:"short"`           // what happens in it, for the row of a table
	Proves string   `json:"proves"`          // the sentence
	Faults []string `json:"faults"`          // in order
	Costs  string   `json:"costs"`           // what it may cost a safe lock
	Fails  []string `json:"fails,omitempty"` // the subjects that are unsafe in it, in every run

	Kinds bool `json:"kinds,omitempty"` // every kind of lock of this library is run in it, not only the mutex

	// Actors is how many of the clients follow the script. The others make traffic.
	Actors int   `json:"actors"`
	Needs  Needs `json:"-"`

	MinTTL time.Duration `json:"-"` // the minimum length of leases
	// Orphan is the part of the TTL for which a key may outlive its owner; 0: the whole TTL and a margin.
	Orphan float64 `json:"-"`

	Play func(ctx context.Context, s *Stage) error `json:"-"`

	spares int // servers that it needs in any case, in addition to the nodes
}

// Needs are the requirements of a scenario.
type Needs struct {
	Nodes   int  // the minimum
	Spares  bool // one server without an address for each node that two quorums share
	Replica bool // servers that replicate; the spares become their replicas
	Clocks  bool // servers whose wall clock can be set
	Server  bool // real servers, for commands that embedded ones do not have
	Durable bool // servers that persist every write before they answer; the subject knows it
	Child   bool // a client in a separate process

	ClientClock bool // clients whose wall clock can be set
}

// All lists the scenarios in the order in which they run.
func All() []Scenario {
	var all []Scenario
	for _, some := range [][]Scenario{outages(), forgetting(), clocks(), holders(), networks(), clients(), others()} {
		all = append(all, some...)
	}
	return all
}

// ByName finds one of All.
func ByName(name string) (Scenario, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))
}

// Fleets lists the kinds of fleets that support the scenario, where they are available.
func (s Scenario) Fleets() []fleet.Kind {
	var kinds []fleet.Kind
	for _, kind := range fleet.Kinds() {
		if kind == fleet.Embedded && s.Needs.servers() {
			continue
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// servers reports whether the scenario needs real servers.
func (n Needs) servers() bool { return n.Replica || n.Clocks || n.Server || n.Durable }

// Args returns the arguments that the servers need.
func (n Needs) Args() []string {
	if !n.Durable {
		return nil
	}
	return []string{"--appendonly", "yes", "--appendfsync", "always"}
}

// ErrUnable means that a scenario cannot run here: it was left out, not passed. Errors that say why wrap it.
var ErrUnable = errors.New("it cannot run here")

// Able returns nil if the scenario can run on such a fleet, or an error that says why not. child is the command for a
// client in a separate process, if there is one.
func (s Scenario) Able(kind fleet.Kind, nodes, clients int, child []string) error {
	no := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %w", s.Name, ErrUnable, fmt.Errorf(format, args...))
	}
	if err := fleet.Available(kind); err != nil {
		return no("%w", err)
	}
	switch {
	case nodes < s.Needs.Nodes:
		return no("%d nodes are too few; give --nodes %d or more", nodes, s.Needs.Nodes)
	case clients < max(1, s.Actors):
		return no("%d clients are too few; its script needs %d", clients, max(1, s.Actors))
	case s.Needs.Replica && kind == fleet.Embedded:
		return no("embedded nodes have no replicas; use --fleet process or docker")
	case (s.Needs.Server || s.Needs.Durable) && kind == fleet.Embedded:
		return no("embedded nodes are not real servers; use --fleet process or docker")
	}
	if s.Needs.Clocks {
		if err := fleet.ClocksAvailable(kind); err != nil {
			return no("%w", err)
		}
	}
	if s.Needs.Child {
		if err := traffic.ChildAvailable(); err != nil {
			return no("%w", err)
		}
		if len(child) == 0 {
			return no("no command for a client in a separate process was given")
		}
	}
	return nil
}

// Spares returns how many servers the scenario needs in addition to the nodes.
func (s Scenario) Spares(nodes int) int {
	if s.Needs.Spares || s.Needs.Replica {
		return max(s.spares, Shared(nodes))
	}
	return s.spares
}

// Quorum returns the majority of the nodes.
func Quorum(nodes int) int { return nodes/2 + 1 }

// Shared returns how many nodes two quorums have in common at least.
func Shared(nodes int) int { return 2*Quorum(nodes) - nodes }
