package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

type releaser struct {
	operator
	force, foreign bool
}

func newRelease() *cobra.Command {
	o := &releaser{operator: looking()}
	cmd := &cobra.Command{
		Use:   "release --force [flags] KEY",
		Short: "Delete a lock, whoever holds it, and show who held it",
		Long: `Deletes KEY from every node, whoever holds it. Use it if you know that the holder is gone for good, and you do not
want to wait until the lease expires.

A holder that is still alive may believe that it holds the lock until its next renewal, and by then another client may
hold it. It is notified sooner only if it has waited for a lock lately, and users may use channels. (redlock run then
ends its command: TERM, and KILL after --kill-after.) Only a resource that compares fencing tokens is safe from both.
Fencing tokens continue to grow.

redlock deletes KEY only if it is a lock of this library: 32 hexadecimal digits, perhaps with an owner behind them, that
expire, or the list of those that share the lock. Anything else may be other data with the same name. If it is a lock of
another library, --foreign deletes it too. Any other key that is not a string is never deleted.

Exit code: 0 nobody holds it now, 69 too few nodes answered, 64 usage, or the key is not a lock.`,
		Example: "  redlock release --force --nodes a:6379,b:6379,c:6379 nightly",
		Args: func(cmd *cobra.Command, keys []string) error {
			if len(keys) > 1 {
				return usage("%s takes one KEY", cmd.CommandPath())
			}
			return someKeys(cmd, keys)
		},
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, keys []string) error {
			if !o.force {
				return usage("this would take the lock away from its holder; add --force to do it")
			}
			return stoppable(cmd, func(ctx context.Context) error { return o.release(ctx, cmd.OutOrStdout(), keys[0]) })
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.force, "force", false, "take the lock away, whoever holds it")
	cmd.Flags().BoolVar(&o.foreign, "foreign", false, "delete it even if this library did not write it")
	return cmd
}

// A releaseReport is what release --json prints.
type releaseReport struct {
	lockReport      // before
	Released   bool `json:"released"`
}

func (o *releaser) release(ctx context.Context, out io.Writer, key string) error {
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	state, err := client.Inspect(ctx, key)
	if state == nil {
		return failure(err)
	}
	if err := o.isLock(state); err != nil {
		return err
	}
	before := reportOn(state)
	released := client.ForceRelease(ctx, key) // before anything is printed: a pipe that nobody reads must not prevent it
	if !o.json {
		if err := before.print(out); err != nil {
			return errors.Join(err, released)
		}
	}
	if released != nil {
		return failure(released)
	}
	on := 0
	for _, n := range state.Nodes {
		if n.Held {
			on++
		}
	}
	switch {
	case o.json:
		return writeJSON(out, releaseReport{before, on > 0})
	case on == 0:
		fmt.Fprintln(out, "there was nothing to release")
	case state.Held:
		fmt.Fprintf(out, "%s was released\n", printable(key))
	default:
		fmt.Fprintf(out, "nobody held %s; what was left of it on %d of %s was deleted\n", printable(key), on, plural(len(state.Nodes), "node"))
	}
	return nil
}

// isLock returns an error if the key may not be a lock.
func (o *releaser) isLock(s *redlock.State) error {
	for _, n := range s.Nodes {
		switch {
		case !n.Held:
		case n.Token == "":
			return notALock("on %s the key of %q is not a string, so not a lock; delete it by hand, or use another name", n.Node, s.Name)
		case o.foreign || (isToken(n.Token) || len(n.Sharers) > 0) && n.Remaining >= 0:
		case n.Remaining < 0:
			return notALock("on %s the key of %q never expires, so this library did not write it: it may not be a lock; add --foreign to delete it anyway", n.Node, s.Name)
		default:
			return notALock("on %s the key of %q holds %s, and no owner token of this library: it may not be a lock; "+
				"add --foreign to delete it anyway", n.Node, s.Name, plural(len(n.Token), "byte"))
		}
	}
	return nil
}

// isToken reports whether s has the form of an owner token of this library; see redlock.Lease.Token. Those of clients
// that may not publish are in capital letters.
func isToken(s string) bool {
	digits, _, _ := strings.Cut(s, ":")
	return len(digits) == 32 && strings.Trim(digits, "0123456789abcdefABCDEF") == ""
}
