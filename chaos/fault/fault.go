// Package fault contains the faults that can be injected into a fleet. They are values that can be printed and parsed,
// so a failing run can be repeated from its output.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Verb is the kind of a fault.
type Verb string

// The verbs. Faults that heal last until then; the others are instant.
const (
	Kill          Verb = "kill"            // kill(node-1): SIGKILL. Heals by a start without data
	Pause         Verb = "pause"           // pause(node-1): the server stops, its connections stay. Heals
	Cut           Verb = "cut"             // cut(node-1), cut(node-1,client-2): nothing arrives. Heals
	CutReplies    Verb = "cut-replies"     // like cut, but requests arrive and are executed. Heals
	Delay         Verb = "delay"           // delay(node-1,50ms), delay(node-1,client-2,50ms): each way. Heals
	Clock         Verb = "clock"           // clock(node-1,+1m0s): the server's wall clock. Heals
	ClientClock   Verb = "client-clock"    // client-clock(client-2,+1m0s): the client's wall clock. Heals
	Lag           Verb = "lag"             // lag(node-1): its replica gets no more data. Never heals
	RestartEmpty  Verb = "restart-empty"   // kill, and start without data
	Save          Verb = "save"            // SAVE: the data that restart-old-rdb restores
	RestartOldRDB Verb = "restart-old-rdb" // kill, and start with the saved data
	FlushAll      Verb = "flushall"        // FLUSHALL
	Replace       Verb = "replace"         // replace(node-1): another, long-running server takes over the address
	Follow        Verb = "follow"          // follow(node-1): a spare server becomes its replica, and catches up
	Promote       Verb = "promote"         // promote(node-1): it is killed, and its replica takes over the address
	Detach        Verb = "detach"          // detach(node-1): its replica becomes a master, and gets no more data
	Failback      Verb = "failback"        // failback(node-1): it follows that replica until it has caught up, and becomes a master again
	Unsubscribe   Verb = "unsubscribe"     // unsubscribe(node-1): CLIENT KILL TYPE pubsub, again and again. Heals
)

// A shape says which arguments a verb has, and whether its fault lasts.
type shape struct{ node, client, optionalClient, by, lasts bool }

var shapes = map[Verb]shape{
	Kill: {node: true, lasts: true}, Pause: {node: true, lasts: true},
	Cut: {node: true, optionalClient: true, lasts: true}, CutReplies: {node: true, optionalClient: true, lasts: true},
	Delay:        {node: true, optionalClient: true, by: true, lasts: true},
	Clock:        {node: true, by: true, lasts: true},
	ClientClock:  {client: true, by: true, lasts: true},
	RestartEmpty: {node: true}, Save: {node: true}, RestartOldRDB: {node: true}, FlushAll: {node: true},
	Replace: {node: true}, Follow: {node: true}, Lag: {node: true}, Promote: {node: true}, Detach: {node: true}, Failback: {node: true},
	Unsubscribe: {node: true, lasts: true},
}

// A Fault affects one node, one client, or the network between the two.
type Fault struct {
	Verb   Verb
	Node   string        // "" for a fault of a client
	Client int           // from 1; 0: all clients
	By     time.Duration // of Delay, Clock and ClientClock
}

// On returns a fault of a node.
func On(verb Verb, node string) Fault { return Fault{Verb: verb, Node: node} }

// For returns the same fault for one client only.
func (f Fault) For(client int) Fault {
	f.Client = client
	return f
}

// Lasts reports whether the fault lasts until it is healed.
func (f Fault) Lasts() bool { return shapes[f.Verb].lasts }

// String returns the fault in the form that Parse reads.
func (f Fault) String() string {
	var of []string
	if f.Node != "" {
		of = append(of, f.Node)
	}
	if f.Client != 0 {
		of = append(of, clientPrefix+strconv.Itoa(f.Client))
	}
	if shapes[f.Verb].by {
		by := f.By.String()
		if f.By > 0 && f.Verb != Delay {
			by = "+" + by
		}
		of = append(of, by)
	}
	return fmt.Sprintf("%s(%s)", f.Verb, strings.Join(of, ","))
}

const clientPrefix = "client-"

// Parse parses the result of String.
func Parse(text string) (Fault, error) {
	verb, rest, open := strings.Cut(strings.TrimSpace(text), "(")
	inside, after, closed := strings.Cut(rest, ")")
	if !open || !closed || after != "" {
		return Fault{}, fmt.Errorf("fault %q: write it as kill(node-1)", text)
	}
	f := Fault{Verb: Verb(strings.TrimSpace(verb))}
	if err := f.Verb.check(); err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	for _, of := range strings.Split(inside, ",") {
		if err := f.take(strings.TrimSpace(of)); err != nil {
			return Fault{}, fmt.Errorf("fault %q: %w; write it as %s", text, err, f.Verb.form())
		}
	}
	if err := f.check(); err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

// take parses one argument.
func (f *Fault) take(of string) error {
	if number, ok := strings.CutPrefix(of, clientPrefix); ok {
		client, err := strconv.Atoi(number)
		if err != nil || client < 1 || f.Client != 0 {
			return fmt.Errorf("%q: clients are counted from client-1, and a fault has at most one", of)
		}
		f.Client = client
		return nil
	}
	if d, err := time.ParseDuration(of); err == nil {
		if f.By != 0 {
			return errors.New("it has two durations")
		}
		f.By = d
		return nil
	}
	if of == "" || f.Node != "" {
		return errors.New("a fault has one node")
	}
	f.Node = of
	return nil
}

func (v Verb) check() error {
	if _, known := shapes[v]; !known {
		return fmt.Errorf("there is no %q; there are %s", v, strings.Join(verbs(), ", "))
	}
	return nil
}

func (f Fault) check() error {
	if err := f.Verb.check(); err != nil {
		return err
	}
	if err := f.fits(shapes[f.Verb]); err != nil {
		return fmt.Errorf("%w; write it as %s", err, f.Verb.form())
	}
	return nil
}

// form is a fault with this verb, as an example.
func (v Verb) form() string {
	s, example := shapes[v], Fault{Verb: v}
	if s.node {
		example.Node = "node-1"
	}
	if s.client {
		example.Client = 2
	}
	switch {
	case v == Delay:
		example.By = 50 * time.Millisecond
	case s.by:
		example.By = time.Minute
	}
	return example.String()
}

func (f Fault) fits(s shape) error {
	switch {
	case s.node != (f.Node != ""):
		return fmt.Errorf("it names a node: %v, but should: %v", f.Node != "", s.node)
	case s.client && f.Client == 0:
		return errors.New("it needs a client")
	case !s.client && !s.optionalClient && f.Client != 0:
		return errors.New("it takes no client")
	case s.by && f.By == 0:
		return errors.New("it needs a duration other than 0")
	case !s.by && f.By != 0:
		return errors.New("it takes no duration")
	case f.Verb == Delay && f.By < 0:
		return errors.New("a delay must be above 0")
	}
	return nil
}

// ends reports whether the end of f would end g too, where both last: they are of one place and of one kind.
func (f Fault) ends(g Fault) bool {
	return f.Node == g.Node && f.Client == g.Client && f.Verb.kind() == g.Verb.kind()
}

// kind is a verb that stands for those that are healed by the same act, or of which one ends the other.
func (v Verb) kind() Verb {
	switch v {
	case CutReplies:
		return Cut
	case Pause:
		return Kill
	}
	return v
}

func verbs() []string {
	var names []string
	for v := range shapes {
		names = append(names, string(v))
	}
	slices.Sort(names)
	return names
}
