package fleet

import (
	"context"
	"fmt"

	"github.com/quorumlock/redlock/internal/fleet/server"
)

// A Driver makes fleets of one kind.
type Driver struct {
	Available func() error // see [Available]
	Launch    func(ctx context.Context, o Options, logf Logf) (Launcher, error)
}

// Logf writes a line into the log of a fleet.
type Logf func(format string, args ...any)

// drivers is complete after the init functions.
var drivers = map[Kind]Driver{
	Embedded: {
		Available: func() error { return nil },
		Launch:    func(context.Context, Options, Logf) (Launcher, error) { return embeddedLauncher{}, nil },
	},
	Process: {
		Available: func() error { _, err := Server(); return err },
		Launch: func(ctx context.Context, o Options, _ Logf) (Launcher, error) {
			return newProcessLauncher(ctx, o)
		},
	},
}

// Register adds a kind that is not built into this package. Call it in an init function.
func Register(kind Kind, d Driver) { drivers[kind] = d }

func driverOf(kind Kind) (Driver, error) {
	d, ok := drivers[kind]
	switch {
	case ok:
		return d, nil
	case kind == Docker:
		return d, fmt.Errorf("the docker fleet is not built into this program; import _ %q", dockerPackage)
	}
	return d, fmt.Errorf("%q is no kind of fleet; there are embedded, process and docker", kind)
}

// dockerPackage registers the docker fleet. What does not import it needs no module of Docker, neither to be built nor in
// its go.sum.
const dockerPackage = "github.com/quorumlock/redlock/internal/fleet/dockerfleet"

// A Launcher makes the backends of one fleet, and owns what they share.
type Launcher interface {
	// Node prepares a node without starting it. gone is called whenever its server has ended, by itself or by us,
	// before the call that ended it returns.
	Node(name string, gone func()) (Backend, error)
	// Close removes what is shared. It is called after the Close of every node, also after a failed start.
	Close() error
}

// A Backend is one server that can be started and ended several times. Node calls its methods one at a time, except
// Alive, Address and Direct.
type Backend interface {
	Address() server.Address // for clients or the link
	Direct() server.Address  // an address that bypasses packet rules
	Start(ctx context.Context, data Data) error
	Stop(ctx context.Context) error
	Kill() error
	Pause() error
	Resume() error
	Save(ctx context.Context) error
	Alive() bool
	Clock() server.Clock              // "": the clock cannot be set
	PeerAddress() (host, port string) // for the other servers of the fleet
	Cutter() Cutter                   // nil: packets cannot be dropped, use the link
	Close() error
}

// A Cutter drops packets at the node.
type Cutter interface{ Cut(mode CutMode) error }
