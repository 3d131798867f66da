package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/redlock"
)

// try does on each node what a lock needs: what the node's user may not do shows only where it is done. Problems go
// into the status.
func try(ctx context.Context, client *redlock.Client, status []redlock.NodeStatus) error {
	problems, err := client.Trial(ctx)
	if err != nil {
		return failure(err)
	}
	for i, problem := range problems {
		if problem != nil && status[i].Err == nil {
			status[i].Err = fmt.Errorf("it fails at what a lock needs: %w", problem)
		}
	}
	return nil
}

// awaitFree waits until no node has the name, so that nothing of ours is left behind: after a release a node may
// keep the key for a client that waited and gave up, until that client says so, or for a tenth of a second.
func awaitFree(ctx context.Context, client *redlock.Client, name string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for ctx.Err() == nil {
		state, err := client.Inspect(ctx, name)
		if err != nil {
			return
		}
		if !slices.ContainsFunc(state.Nodes, func(n redlock.NodeState) bool { return n.Held || n.Reserved }) {
			return
		}
		sleep(ctx, 5*time.Millisecond)
	}
}

// remedy follows what a server says that lets its user do too little.
func remedy(problem string) string {
	for _, sign := range []string{"NOPERM", "no permissions", "can't run this command"} {
		if strings.Contains(problem, sign) {
			return "; docs/operations.md has the rights that its user must have; where they are for keys with a prefix, give --prefix"
		}
	}
	return ""
}
