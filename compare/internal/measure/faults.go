package measure

import (
	"errors"
	"fmt"
	"time"
)

// A Fault is what is wrong while it is measured.
type Fault string

const (
	AllWell   Fault = ""
	Stopped   Fault = "one stopped" // SIGSTOP, once the clients are connected and warm
	OneSlower Fault = "one delayed"
	AllSlower Fault = "all delayed"
)

// slower is what a round trip takes more, at the least. A link delays each direction, by a timer that on most
// systems is late by up to a millisecond; so the round trip is measured as well, see [RTT].
const slower = time.Millisecond

// before applies what is wrong from the start.
func (f Fault) before(s *Servers) error {
	nodes := s.Nodes()
	switch f {
	case AllWell, Stopped:
		return nil
	case OneSlower:
		nodes = nodes[len(nodes)-1:]
	case AllSlower:
	default:
		return fmt.Errorf("%q is no fault", f)
	}
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Delay(slower/2))
	}
	return errors.Join(errs...)
}

// after applies what goes wrong once all is running. It is the last server, so that those who keep their
// locks on the first one alone have nothing of it.
func (f Fault) after(s *Servers) error {
	if f != Stopped {
		return nil
	}
	nodes := s.Nodes()
	return nodes[len(nodes)-1].Pause()
}
