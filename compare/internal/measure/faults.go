package measure

import (
	"errors"
	"fmt"
	"time"
)

// A Fault is a fault during the measurement.
type Fault string

const (
	AllWell   Fault = ""
	Stopped   Fault = "one stopped" // SIGSTOP, after the clients are connected and warmed up
	OneSlower Fault = "one delayed"
	AllSlower Fault = "all delayed"
	AllFar    Fault = "all far away"
)

// slower is the minimum delay of a round trip. A link delays each direction with a timer, which on most systems is late
// by up to a millisecond. So the round trip is measured as well; see [RTT].
const slower = time.Millisecond

// far is the least round trip between continents.
const far = 150 * time.Millisecond

// before applies faults that exist from the start.
func (f Fault) before(s *Servers) error {
	nodes, delay := s.Nodes(), slower
	switch f {
	case AllWell, Stopped:
		return nil
	case OneSlower:
		nodes = nodes[len(nodes)-1:]
	case AllSlower:
	case AllFar:
		delay = far
	default:
		return fmt.Errorf("%q is no fault", f)
	}
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Delay(delay/2))
	}
	return errors.Join(errs...)
}

// after applies faults that begin when everything is running. They affect the last server, so subjects that use only
// the first one do not notice.
func (f Fault) after(s *Servers) error {
	if f != Stopped {
		return nil
	}
	nodes := s.Nodes()
	return nodes[len(nodes)-1].Pause()
}
