// Package scenario is what is done to a lock to see whether it holds. Each scenario proves one sentence.
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

// A Scenario is faults in an order, and clients that make the most of them.
type Scenario struct {
	Name   string   `json:"name"`
	Proves string   `json:"proves"`          // the sentence
	Faults []string `json:"faults"`          // in which order
	Costs  string   `json:"costs"`           // what it may cost a lock that is safe
	Fails  []string `json:"fails,omitempty"` // the subjects that are seen unsafe in it, in every run

	// Actors is how many of the clients follow the script; the others make traffic beside it.
	Actors int   `json:"actors"`
	Needs  Needs `json:"-"`

	MinTTL time.Duration `json:"-"` // leases are no shorter than that in it
	// Orphan is the part of the TTL that a key may outlive its owner; 0: all of it, and some more.
	Orphan float64 `json:"-"`

	Play func(ctx context.Context, s *Stage) error `json:"-"`
}

// Needs are what a scenario cannot do without.
type Needs struct {
	Nodes   int  // at the least
	Spares  bool // a server for each node that two quorums share, which no address leads to
	Replica bool // servers that replicate; the spares are to be their replicas
	Clocks  bool // servers whose wall clock can be set
	Server  bool // real servers, for commands that embedded ones have not
	Durable bool // servers that persist every write before they answer; the subject is told
	Child   bool // a client in a process of its own
}

// All lists the scenarios, in the order in which they run.
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

// Fleets lists the kinds of fleets that can do it where they can be had at all.
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

// servers says whether nothing but real servers will do.
func (n Needs) servers() bool { return n.Replica || n.Clocks || n.Server || n.Durable }

// Args are those that the servers need.
func (n Needs) Args() []string {
	if !n.Durable {
		return nil
	}
	return []string{"--appendonly", "yes", "--appendfsync", "always"}
}

// ErrUnable is wrapped by errors that say why a scenario cannot be done here: it was left out, which is not
// to say that it was passed.
var ErrUnable = errors.New("it cannot be done")

// Able says whether the scenario can be done on such a fleet: nil, or what is in the way. child is the
// command that makes a client of its own process, if there is one.
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
		return no("%d clients are too few; its script has %d", clients, max(1, s.Actors))
	case s.Needs.Replica && kind == fleet.Embedded:
		return no("embedded nodes have no replicas; use --fleet process or docker")
	case (s.Needs.Server || s.Needs.Durable) && kind == fleet.Embedded:
		return no("embedded nodes are no real servers; use --fleet process or docker")
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
			return no("no command for a client in a process of its own was given")
		}
	}
	return nil
}

// Spares returns how many servers it needs beside the nodes.
func (s Scenario) Spares(nodes int) int {
	if s.Needs.Spares || s.Needs.Replica {
		return Shared(nodes)
	}
	return 0
}

// Quorum is a majority.
func Quorum(nodes int) int { return nodes/2 + 1 }

// Shared is how many nodes two quorums have in common at the least.
func Shared(nodes int) int { return 2*Quorum(nodes) - nodes }
