package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/sleep"
)

// try executes on each node every command that a lock needs, and returns the status of the nodes after that. This is the
// only way to find missing rights of the node's user. It writes problems into the status: as a warning where a mutex
// works, and other kinds of lock do not.
func try(ctx context.Context, client *redlock.Client) ([]redlock.NodeStatus, error) {
	problems, err := client.Trial(ctx)
	if err != nil {
		return nil, failure(err)
	}
	status := client.Status(ctx)
	for i, problem := range problems {
		if kinds := (*redlock.KindsError)(nil); errors.As(problem, &kinds) {
			status[i].Warnings = append(status[i].Warnings, withRemedy(oneLine(kinds.Error())))
			continue
		}
		if problem != nil && status[i].Err == nil {
			status[i].Err = fmt.Errorf("a command that a lock needs fails: %w", problem)
		}
	}
	return status, nil
}

// awaitFree waits until no node has the name, so that bench leaves nothing behind. After a release a node may reserve
// the key for a waiter that gave up, until that client withdraws or the reservation expires.
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
		_ = sleep.For(ctx, 5*time.Millisecond)
	}
}
