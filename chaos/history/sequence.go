package history

import (
	"errors"
	"fmt"
	"slices"
)

// A sequence knows which events may follow the previous ones. A judge can rely on events that pass it: each belongs to
// a known op, and comes only once.
type sequence struct {
	began, ended bool
	at           int64
	nodes        []string
	permits      int // of the run
	ops          map[uint64]op
	writes       map[access]bool   // writes without an answer so far
	names        map[string]string // so that each name is in memory only once
}

// An op is the state of an acquire.
type op struct {
	client                int
	resource              string
	granted, over         bool // it was answered: granted or not
	lost, released, freed bool
	queued                bool
	handed                bool // it was released to an op From it
}

// An access identifies a write, to find its answer.
type access struct {
	op       uint64
	resource string
	fenced   bool
}

func newSequence() *sequence {
	return &sequence{ops: map[uint64]op{}, writes: map[access]bool{}, names: map[string]string{}}
}

// add checks the next event and completes it: an event of an op gets the Client and Resource of the op if it has none.
func (s *sequence) add(e *Event) error {
	switch {
	case s.ended:
		return fmt.Errorf("%s after the end", e.Kind)
	case e.At < s.at:
		return fmt.Errorf("time goes back: from %d to %d", s.at, e.At)
	case e.Client < 0:
		return fmt.Errorf("client %d: they are counted from 1", e.Client)
	case !s.began && e.Kind != Start:
		return fmt.Errorf("the first line is %q, not %q", e.Kind, Start)
	case s.began && e.Kind == Start:
		return errors.New("a second start")
	case e.Kind != Start && e.Run != nil:
		return fmt.Errorf("%s with a run, which only the start has", e.Kind)
	}
	s.at = e.At
	e.Kind = Kind(s.name(string(e.Kind)))
	e.Resource, e.Node, e.Fault = s.name(e.Resource), s.name(e.Node), s.name(e.Fault)
	switch e.Kind {
	case Start:
		return s.start(e.Run)
	case Acquire:
		return s.acquire(e)
	case Granted, Refused, Failed, Lost, Release, Freed, Read, Write, Written, Queued:
		return s.ofOp(e)
	case Owner:
		if e.Node == "" || e.Resource == "" {
			return errors.New("owner without a node or a resource")
		}
		if e.Since > e.At {
			return fmt.Errorf("owner since %d, which is later", e.Since)
		}
		return s.knows(e.Node)
	case Fault:
		if e.Fault == "" {
			return errors.New("fault without its name")
		}
		if e.Since > e.At {
			return fmt.Errorf("fault since %d, which is later", e.Since)
		}
		return s.knows(e.Node)
	case Note:
	case End:
		s.ended = true
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}

// end is called after the last event.
func (s *sequence) end() error {
	switch {
	case !s.began:
		return errors.New("empty: there is no start")
	case !s.ended:
		return errors.New("missing: the history has no end")
	}
	return nil
}

func (s *sequence) name(name string) string {
	if name == "" {
		return ""
	}
	known, ok := s.names[name]
	if !ok {
		known = name
		s.names[name] = name
	}
	return known
}

func (s *sequence) knows(node string) error {
	if node != "" && !slices.Contains(s.nodes, node) {
		return fmt.Errorf("node %q is not a node of the run", node)
	}
	return nil
}

func checkVersion(version int) error {
	if version != Version {
		return fmt.Errorf("version %d of the format is unknown, this program knows %d", version, Version)
	}
	return nil
}

func (s *sequence) start(run *Run) error {
	if run == nil {
		return errors.New("start without a run")
	}
	if err := checkVersion(run.Version); err != nil {
		return err
	}
	if run.TTL <= 0 {
		return fmt.Errorf("the run's ttl is %d", run.TTL)
	}
	if run.Permits < 0 {
		return fmt.Errorf("the run's permits are %d", run.Permits)
	}
	if run.Quorum < 0 || run.Quorum > len(run.Nodes) {
		return fmt.Errorf("the run's quorum is %d of %d nodes", run.Quorum, len(run.Nodes))
	}
	for i, node := range run.Nodes {
		if node == "" || slices.Contains(run.Nodes[:i], node) {
			return fmt.Errorf("the run has a node %q twice, or without a name", node)
		}
	}
	s.began = true
	s.nodes, s.permits = run.Nodes, run.Permits
	return nil
}

func (s *sequence) acquire(e *Event) error {
	switch _, known := s.ops[e.Op]; {
	case e.Op == 0:
		return errors.New("acquire without an op")
	case known:
		return fmt.Errorf("op %d is acquired a second time", e.Op)
	case e.Client == 0:
		return errors.New("acquire without a client")
	case e.Resource == "":
		return errors.New("acquire without a resource")
	case e.Role != Alone && e.Role != Reader:
		return fmt.Errorf("unknown role %q", e.Role)
	case e.Permits < 0 || e.Permits > max(1, s.permits):
		return fmt.Errorf("op %d wants %d permits of %d", e.Op, e.Permits, s.permits)
	}
	if e.From != 0 {
		if from, known := s.ops[e.From]; !known || !from.handed || from.resource != e.Resource {
			return fmt.Errorf("op %d goes on with op %d, which did not hand %q over", e.Op, e.From, e.Resource)
		}
	}
	s.ops[e.Op] = op{client: e.Client, resource: e.Resource}
	return nil
}

// ofOp checks the events of an op after its acquire.
func (s *sequence) ofOp(e *Event) error {
	o, known := s.ops[e.Op]
	switch {
	case !known:
		return fmt.Errorf("%s of op %d, which was never acquired", e.Kind, e.Op)
	case e.Client != 0 && e.Client != o.client:
		return fmt.Errorf("%s of op %d by client %d, but client %d acquired it", e.Kind, e.Op, e.Client, o.client)
	}
	e.Client = o.client
	if e.Resource == "" {
		e.Resource = o.resource
	}
	var err error
	switch e.Kind {
	case Granted, Refused, Failed:
		err = o.answer(e)
	case Queued:
		if o.queued || e.Since <= 0 || e.Since > e.At {
			return fmt.Errorf("queued of op %d a second time, or since no time before", e.Op)
		}
		o.queued = true
	case Read, Write, Written:
		return s.access(e, o)
	default:
		err = o.finish(e)
	}
	s.ops[e.Op] = o
	return err
}

func (o *op) answer(e *Event) error {
	switch {
	case o.granted || o.over:
		return fmt.Errorf("%s of op %d, which was already answered", e.Kind, e.Op)
	case e.Resource != o.resource:
		return fmt.Errorf("%s of op %d for %q, but it requested %q", e.Kind, e.Op, e.Resource, o.resource)
	}
	o.granted = e.Kind == Granted
	o.over = !o.granted
	return nil
}

// finish checks the events that end a lease. A holder may notice a loss and then release. A library may also report a
// release as a loss.
func (o *op) finish(e *Event) error {
	if !o.granted {
		return fmt.Errorf("%s of op %d, which was not granted", e.Kind, e.Op)
	}
	// Without Until the belief would seem to have length 0, and no overlap would be found.
	if e.Kind != Freed && e.Until <= 0 && !o.lost && !o.released {
		return fmt.Errorf("%s of op %d without until", e.Kind, e.Op)
	}
	again := false
	switch e.Kind {
	case Lost:
		again, o.lost = o.lost, true
	case Release:
		again, o.released, o.handed = o.released, true, e.Handed
	default:
		if !o.released {
			return fmt.Errorf("freed of op %d, which was not released", e.Op)
		}
		again, o.freed = o.freed, true
	}
	if again {
		return fmt.Errorf("%s of op %d for the second time", e.Kind, e.Op)
	}
	return nil
}

func (s *sequence) access(e *Event, o op) error {
	if !o.granted {
		return fmt.Errorf("%s of op %d, which was not granted", e.Kind, e.Op)
	}
	a := access{op: e.Op, resource: e.Resource, fenced: e.Fenced}
	switch {
	case e.Kind == Write && s.writes[a]:
		return fmt.Errorf("write of op %d before its last one was answered", e.Op)
	case e.Kind == Write:
		s.writes[a] = true
	case e.Kind == Written && !s.writes[a]:
		return fmt.Errorf("written of op %d, which has no such write", e.Op)
	case e.Kind == Written:
		delete(s.writes, a)
	}
	return nil
}
