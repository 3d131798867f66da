// Package fault is what can be done to a fleet, as values that print as they parse, so that a run that went
// wrong can be repeated from what it printed.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Verb says what a fault does.
type Verb string

// The verbs there are. Those that heal last until then; the others are over at once.
const (
	Kill          Verb = "kill"            // kill(node-1): SIGKILL. Heals by a start without data
	Pause         Verb = "pause"           // pause(node-1): the server halts, its connections stay. Heals
	Cut           Verb = "cut"             // cut(node-1), cut(node-1,client-2): nothing arrives. Heals
	CutReplies    Verb = "cut-replies"     // as cut, but requests arrive and are applied. Heals
	Delay         Verb = "delay"           // delay(node-1,50ms), delay(node-1,client-2,50ms): each way. Heals
	Clock         Verb = "clock"           // clock(node-1,+1m0s): the server's wall clock. Heals
	ClientClock   Verb = "client-clock"    // client-clock(client-2,+1m0s): the client's wall clock. Heals
	Lag           Verb = "lag"             // lag(node-1): its replica hears no more. Heals never
	RestartEmpty  Verb = "restart-empty"   // kill, and start without data
	Save          Verb = "save"            // SAVE: what restart-old-rdb will come back with
	RestartOldRDB Verb = "restart-old-rdb" // kill, and start with what was saved
	FlushAll      Verb = "flushall"        // FLUSHALL
	Replace       Verb = "replace"         // replace(node-1): another, long-running server takes over the address
	Follow        Verb = "follow"          // follow(node-1): a spare server becomes its replica, and is in step
	Promote       Verb = "promote"         // promote(node-1): it is killed, its replica takes over the address
	Detach        Verb = "detach"          // detach(node-1): its replica is made a master of its own, and hears no more
	Failback      Verb = "failback"        // failback(node-1): it follows that replica until it is in step, and is a master again
	Unsubscribe   Verb = "unsubscribe"     // unsubscribe(node-1): CLIENT KILL TYPE pubsub, again and again. Heals
)

// A shape says what a verb is said of.
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

// A Fault is one thing done to one node, to one client, or to the way between the two.
type Fault struct {
	Verb   Verb
	Node   string        // "" where it is done to a client alone
	Client int           // from 1; 0: to all clients
	By     time.Duration // of Delay, Clock and ClientClock
}

// On makes a fault of a node.
func On(verb Verb, node string) Fault { return Fault{Verb: verb, Node: node} }

// For makes the fault one that the client alone suffers.
func (f Fault) For(client int) Fault {
	f.Client = client
	return f
}

// Lasts says whether the fault goes on until it is healed.
func (f Fault) Lasts() bool { return shapes[f.Verb].lasts }

// String returns what Parse reads.
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

// Parse reads what String printed.
func Parse(text string) (Fault, error) {
	verb, rest, open := strings.Cut(strings.TrimSpace(text), "(")
	inside, after, closed := strings.Cut(rest, ")")
	if !open || !closed || after != "" {
		return Fault{}, fmt.Errorf("fault %q: write it as kill(node-1)", text)
	}
	f := Fault{Verb: Verb(verb)}
	if _, known := shapes[f.Verb]; !known {
		return Fault{}, fmt.Errorf("fault %q: there is no %q; there are %s", text, verb, strings.Join(verbs(), ", "))
	}
	for _, of := range strings.Split(inside, ",") {
		if err := f.take(strings.TrimSpace(of)); err != nil {
			return Fault{}, fmt.Errorf("fault %q: %w", text, err)
		}
	}
	if err := f.check(); err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

// take puts one argument where it belongs.
func (f *Fault) take(of string) error {
	if number, ok := strings.CutPrefix(of, clientPrefix); ok {
		client, err := strconv.Atoi(number)
		if err != nil || client < 1 || f.Client != 0 {
			return fmt.Errorf("%q: clients are counted from client-1, one to a fault", of)
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
		return errors.New("it is done to one node")
	}
	f.Node = of
	return nil
}

func (f Fault) check() error {
	s := shapes[f.Verb]
	switch {
	case s.node != (f.Node != ""):
		return fmt.Errorf("a node is named: %v, wanted: %v", f.Node != "", s.node)
	case s.client && f.Client == 0:
		return errors.New("it needs a client")
	case !s.client && !s.optionalClient && f.Client != 0:
		return errors.New("it is not done to a client")
	case s.by && f.By == 0:
		return errors.New("it needs a duration other than 0")
	case !s.by && f.By != 0:
		return errors.New("it takes no duration")
	case f.Verb == Delay && f.By < 0:
		return errors.New("a delay is above 0")
	}
	return nil
}

func verbs() []string {
	var names []string
	for v := range shapes {
		names = append(names, string(v))
	}
	slices.Sort(names)
	return names
}
