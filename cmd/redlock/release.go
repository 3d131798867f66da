package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

type releaser struct {
	operator
	force, foreign bool
	token          string
	stdin          io.Reader
	stderr         io.Writer
}

func newRelease() *cobra.Command {
	o := &releaser{operator: looking(), stdin: os.Stdin}
	cmd := &cobra.Command{
		Use:   "release (--token TOKEN | --force) [flags] KEY [KEY...]",
		Short: "End a lease whose owner token you have, or delete a lock, whoever holds it",
		Long: `With --token, releases the lease of each KEY that has this owner token, and no other, however late it comes: for a
process that goes on with the work of another, or after a crash. redlock run gives its command the token, REDLOCK_TOKEN.
The process that acquired the lock relies on it until it learns of this: it must have stopped its work. A reader, or a
holder of permits, is not released by its token.

With --force, deletes each KEY from every node, whoever holds it. Use it if you know that the holder is gone for good,
and you do not want to wait until the lease expires.

A holder that is still alive may believe that it holds the lock until its next renewal, and by then another client may
hold it. It is notified sooner only if it has waited for a lock lately, and users may use channels. (redlock run then
ends its command: TERM, and KILL after --kill-after.) Only a resource that compares fencing tokens is safe from both.
Fencing tokens continue to grow.

redlock deletes KEY only if it is a lock of this library: 32 hexadecimal digits, perhaps with an owner behind them, that
expire, or the list of those that share the lock. Anything else may be other data with the same name. If it is a lock of
another library, --foreign deletes it too. Any other key that is not a string is never deleted. Of several KEYs it
deletes none if one of them is no lock.

It tells what became of each KEY after it has tried all of them, and fails if one of them failed. A signal ends it
between two KEYs: the rest stays as it is.

Exit code: 0 nobody holds it now, 69 too few nodes answered or deleted it, or its holder may be alive and took it back,
or can take it back with a node that did not answer (release it again when all nodes answer), 64 usage, or the key is
not a lock, 76 no lease has this token: it was released, it expired, or another took the lock. If some KEYs are of 69
and others of 76, it is 69.`,
		Example: "  redlock release --force --nodes a:6379,b:6379,c:6379 nightly\n" +
			"  echo \"$TOKEN\" | redlock release --token - nightly",
		Args:              differentKeys,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, keys []string) error {
			o.stderr = cmd.ErrOrStderr()
			given := cmd.Flags().Changed("token")
			switch {
			case given && (o.force || o.foreign):
				return usage("--token releases one lease, and --force any: give one of them")
			case !given && !o.force:
				return usage("this would take the lock away from its holder; add --force to do it, or give the --token of the lease")
			}
			return stoppable(cmd, func(ctx context.Context) error {
				if given {
					return o.releaseToken(ctx, cmd.OutOrStdout(), keys)
				}
				return o.release(ctx, cmd.OutOrStdout(), keys)
			})
		},
	}
	o.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.token, "token", "", "release the lease with this owner `TOKEN`; - reads it from standard input, where ps does not show it")
	flags.BoolVar(&o.force, "force", false, "take the lock away, whoever holds it")
	flags.BoolVar(&o.foreign, "foreign", false, "delete it even if this library did not write it")
	return cmd
}

// A releaseReport is what release --json prints.
type releaseReport struct {
	lockReport      // before
	Released   bool `json:"released"`
}

// release deletes each of the keys, or none if one of them is no lock.
func (o *releaser) release(ctx context.Context, out io.Writer, keys []string) error {
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	states := make([]*redlock.State, len(keys))
	for i, key := range keys {
		if states[i], err = client.Inspect(ctx, key); states[i] == nil {
			return failure(err)
		}
		if err := o.isLock(states[i]); err != nil {
			return err
		}
	}
	return o.each(ctx, keys, func(key string) error {
		if err := client.ForceRelease(ctx, key); err != nil {
			return failure(err)
		}
		return nil
	}, func(i int, released error) error {
		if i > 0 && !o.json {
			fmt.Fprintln(out)
		}
		return o.tell(out, states[i], released)
	})
}

// each releases the keys, until a signal ends that, and then tells what became of each: an output that nobody reads must
// not prevent a release.
func (o *releaser) each(ctx context.Context, keys []string, release func(key string) error, tell func(i int, released error) error) error {
	var outcomes, failures []error
	for _, key := range keys {
		if ctx.Err() != nil {
			break
		}
		released := release(key)
		if ctx.Err() != nil && errors.Is(released, context.Canceled) {
			break // nobody knows what became of this one
		}
		outcomes = append(outcomes, released)
		if released != nil {
			failures = append(failures, released)
		}
	}
	for i, released := range outcomes {
		switch err := tell(i, released); {
		case err == nil:
		case len(failures) == 0:
			return err
		default:
			return &exitError{worst(failures), errors.Join(append([]error{err}, failures...)...)}
		}
	}
	if !o.json { // its lines have them
		for _, err := range failures {
			say(o.stderr, "%v", err)
		}
	}
	switch {
	case len(outcomes) < len(keys):
		return ctx.Err()
	case len(failures) > 0:
		return &exitError{worst(failures), nil}
	}
	return nil
}

// worst is the exit code for several failures: that of the first, unless another one leaves open whether a lock is held.
func worst(failures []error) (code int) {
	for _, err := range failures {
		if one, _, _ := codeOf(err); code == 0 || one == exitNoQuorum {
			code = one
		}
	}
	return code
}

// tell prints what was released.
func (o *releaser) tell(out io.Writer, state *redlock.State, released error) error {
	before, key := reportOn(state), printable(state.Name)
	on := 0
	for _, n := range state.Nodes {
		if n.Held {
			on++
		}
	}
	if o.json {
		r := releaseReport{before, released == nil && on > 0}
		r.failedBy(released)
		return writeJSON(out, r)
	}
	if err := before.print(out); err != nil || released != nil {
		return err
	}
	switch {
	case on == 0:
		fmt.Fprintln(out, "there was nothing to release")
	case state.Held:
		fmt.Fprintf(out, "%s was released\n", key)
	default:
		fmt.Fprintf(out, "no quorum had %s; it was deleted on %d of %s\n", key, on, plural(len(state.Nodes), "node"))
	}
	return nil
}

// A tokenReport is what release --token --json prints.
type tokenReport struct {
	Key      string `json:"key"`
	Released bool   `json:"released"`
	jsonFailure
}

// releaseToken releases the lease of each key that has the token.
func (o *releaser) releaseToken(ctx context.Context, out io.Writer, keys []string) error {
	token, err := o.readToken(ctx)
	if err != nil {
		return err
	}
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	return o.each(ctx, keys, func(key string) error {
		switch err := client.ReleaseToken(ctx, key, token); {
		case errors.Is(err, redlock.ErrLost):
			return &exitError{exitLost, fmt.Errorf("no lease of %s has this token: it was released, it expired, or it never was; "+
				"a reader or a holder of permits is not released by its token", printable(key))}
		case err != nil:
			return failure(err)
		}
		return nil
	}, func(i int, released error) (err error) {
		switch {
		case o.json:
			r := tokenReport{Key: keys[i], Released: released == nil}
			r.failedBy(released)
			err = writeJSON(out, r)
		case released == nil:
			_, err = fmt.Fprintf(out, "%s was released\n", printable(keys[i]))
		}
		return err
	})
}

// readToken returns the owner token.
func (o *releaser) readToken(ctx context.Context) (string, error) {
	token, by := o.token, "--token"
	if token == "-" {
		if nodes := o.stdinFor(); nodes != "" {
			return "", usage("--token and %s cannot both be read from standard input", nodes)
		}
		var text []byte
		err := unlessEnded(ctx, func() (err error) {
			text, err = io.ReadAll(io.LimitReader(o.stdin, maxPassword))
			return err
		})
		if err != nil {
			return "", usage("%s: %w", by, err)
		}
		token, _, _ = strings.Cut(string(text), "\n")
		token = strings.TrimSuffix(token, "\r")
	}
	if !isToken(token) { // it is not quoted: a part of a token is no help, and the whole is a secret
		return "", usage("%s: it is no owner token; give what REDLOCK_TOKEN or Lease.Token has", by)
	}
	return token, nil
}

// isLock returns an error if the key may not be a lock.
func (o *releaser) isLock(s *redlock.State) error {
	for _, n := range s.Nodes {
		switch {
		case !n.Held:
		case n.NotString && n.Token == "":
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
