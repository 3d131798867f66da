// Package nodes gives the examples their nodes: three in memory, or real ones.
package nodes

import (
	"context"
	"strings"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// Usage says what the flag of an example takes.
const Usage = "URLs of enrolled nodes, separated by commas (redlock enroll); empty: three nodes in memory"

// Open returns the URLs of the nodes. Nodes in memory are new, and are enrolled. Call end when they are not needed.
func Open(ctx context.Context, urls string) (list []string, end func(), err error) {
	if urls != "" {
		return strings.Split(urls, ","), func() {}, nil
	}
	memory, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = memory.Close() }
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(memory.URLs()...)})
	if err == nil {
		err = client.Enroll(ctx, redlock.OnlyNew()) // these nodes are new: no lease can be out on them
		_ = client.Close()
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return memory.URLs(), end, nil
}
