// Package dockerfleet adds docker fleets to package fleet: [fleet.Docker]. A program that imports it, if only for this
// effect, can start them. It is a package of its own so that only such programs need the modules of Docker: go mod tidy
// writes what the tests of a package need into the go.sum of who imports that package.
//
// The tests of what fleets of every kind have in common are here, where every kind is.
package dockerfleet

import (
	"context"

	"github.com/quorumlock/redlock/internal/fleet"
)

func init() {
	fleet.Register(fleet.Docker, fleet.Driver{
		Available: available,
		Launch: func(ctx context.Context, o fleet.Options, logf fleet.Logf) (fleet.Launcher, error) {
			return launch(ctx, o, logf)
		},
	})
}
