package fleet

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/quorumlock/redlock/internal/fleet/server"
)

// ClocksAvailable returns nil if a fleet of the kind can have [Options.Clocks], or an error that says what is missing.
func ClocksAvailable(kind Kind) error {
	if kind == Embedded {
		return errors.New("embedded nodes share the clock of this process; use a process or docker fleet")
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("changing the clock of a server needs a preloaded library, which works on Linux only, not on %s", runtime.GOOS)
	}
	_, err := server.FindCompiler()
	return err
}

// SetClock sets how far the server's wall clock is ahead of true time. It lasts over restarts, until it is set again.
// It needs Options.Clocks.
func (n *Node) SetClock(ahead time.Duration) error {
	return n.do(fmt.Sprintf("clock %+v", ahead), func() error {
		if n.backend.Clock() == "" {
			return n.fleet.unsupported("clock", "start a process or docker fleet with Options.Clocks")
		}
		return n.backend.Clock().Set(ahead)
	})
}

// PeerAddress returns the host and port by which other nodes of the fleet reach this one, for example for REPLICAOF. In
// a docker fleet they change when the node is restarted.
func (n *Node) PeerAddress() (host, port string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.backend.Alive() {
		return "", "", fmt.Errorf("%s: %w", n.name, errDown)
	}
	host, port = n.backend.PeerAddress()
	return host, port, nil
}
