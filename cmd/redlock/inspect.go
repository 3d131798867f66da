package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

func newInspect() *cobra.Command {
	o := &operator{}
	cmd := &cobra.Command{
		Use:   "inspect [flags] KEY [KEY...]",
		Short: "Say who holds a lock, for how long yet, and its largest fence",
		Long: `Asks every node who has KEY: the owner token, the time that is left unless the owner renews it, and the largest
fence that was granted. A lock is held if a quorum of the nodes has it for one owner.

It takes nothing, and is no promise: a moment later it may be another. What a node keeps for a client that waits
counts as free.

Exit code: 0 a quorum of the nodes answered for every KEY, 69 too few did, 64 usage.`,
		Example: "  redlock inspect --nodes a:6379,b:6379,c:6379 nightly",
		Args:    someKeys,
		RunE: func(cmd *cobra.Command, keys []string) error {
			return o.inspect(cmd.Context(), cmd.OutOrStdout(), keys)
		},
	}
	o.flags(cmd)
	return cmd
}

func someKeys(cmd *cobra.Command, keys []string) error {
	if len(keys) == 0 {
		return usage("%s needs a KEY; see %[1]s --help", cmd.CommandPath())
	}
	return nil
}

func (o *operator) inspect(ctx context.Context, out io.Writer, keys []string) error {
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	var failed error
	for i, key := range keys {
		state, err := client.Inspect(ctx, key)
		if state == nil {
			return failure(err)
		}
		failed = errors.Join(failed, err)
		report := reportOn(state)
		switch {
		case o.json:
			err = writeJSON(out, report)
		default:
			if i > 0 {
				fmt.Fprintln(out)
			}
			err = report.print(out)
		}
		if err != nil {
			return err
		}
	}
	if failed != nil {
		return failure(failed)
	}
	return nil
}

// A lockReport is what inspect prints.
type lockReport struct {
	Key    string           `json:"key"`
	Held   bool             `json:"held"`
	Nodes  []nodeLockReport `json:"nodes"`
	Quorum int              `json:"quorum"`
	holding
}

type nodeLockReport struct {
	Node    string `json:"node"`
	Held    bool   `json:"held"`
	Problem string `json:"problem,omitempty"`
	holding
}

type holding struct {
	Token           string `json:"token,omitempty"`
	RemainingMillis int64  `json:"remaining_millis"` // -1: for ever
	Fence           uint64 `json:"fence"`
}

func hold(token string, remaining time.Duration, fence uint64) holding {
	h := holding{Token: token, RemainingMillis: remaining.Milliseconds(), Fence: fence}
	if remaining < 0 {
		h.RemainingMillis = -1
	}
	return h
}

func (h holding) remaining() string {
	if h.RemainingMillis < 0 {
		return "for ever"
	}
	return (time.Duration(h.RemainingMillis) * time.Millisecond).String()
}

func reportOn(s *redlock.State) lockReport {
	l := lockReport{Key: s.Name, Held: s.Held, Quorum: len(s.Nodes)/2 + 1, holding: hold(s.Token, s.Remaining, s.Fence)}
	for _, n := range s.Nodes {
		r := nodeLockReport{Node: n.Node, Held: n.Held, holding: hold(n.Token, n.Remaining, n.Fence)}
		if n.Err != nil {
			r.Problem = oneLine(n.Err.Error())
		}
		l.Nodes = append(l.Nodes, r)
	}
	return l
}

func (l lockReport) print(out io.Writer) error {
	answered, having := 0, 0
	for _, n := range l.Nodes {
		if n.Problem == "" {
			answered++
		}
		if n.Held && n.Token == l.Token {
			having++
		}
	}
	key := oneLine(l.Key)
	switch {
	case l.Held:
		fmt.Fprintf(out, "%s is held by %s on %d of %d nodes, for %s unless it is renewed; largest fence %d\n",
			key, oneLine(l.Token), having, len(l.Nodes), l.remaining(), l.Fence)
	case answered < l.Quorum:
		fmt.Fprintf(out, "%s: nobody knows; %d of %d nodes answered, and it takes %d\n", key, answered, len(l.Nodes), l.Quorum)
	default:
		fmt.Fprintf(out, "%s is free: nobody has %d of %d nodes; largest fence %d\n", key, l.Quorum, len(l.Nodes), l.Fence)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tOWNER\tLEFT\tFENCE")
	for _, n := range l.Nodes {
		switch {
		case n.Problem != "":
			fmt.Fprintf(table, "%s\t? %s\t\t\n", n.Node, n.Problem)
		case n.Held:
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", n.Node, oneLine(n.Token), n.remaining(), n.Fence)
		default:
			fmt.Fprintf(table, "%s\t–\t–\t%d\n", n.Node, n.Fence)
		}
	}
	return table.Flush()
}

func newRelease() *cobra.Command {
	o := &operator{}
	force := false
	cmd := &cobra.Command{
		Use:   "release --force [flags] KEY",
		Short: "Delete a lock, whoever holds it, after saying who",
		Long: `Deletes KEY from every node, whoever holds it. Use it where you know that the holder is gone for good and would
not wait for the lease to expire.

A holder that lives does not hear of it: it may believe until its next renewal, and another may have the lock by
then. Only a resource that compares fences is safe from both; fences go on growing.

Exit code: 0 nobody holds it now, 69 too few nodes answered, 64 usage.`,
		Example: "  redlock release --force --nodes a:6379,b:6379,c:6379 nightly",
		Args: func(cmd *cobra.Command, keys []string) error {
			if len(keys) > 1 {
				return usage("%s takes one KEY", cmd.CommandPath())
			}
			return someKeys(cmd, keys)
		},
		RunE: func(cmd *cobra.Command, keys []string) error {
			if !force {
				return usage("it would take the lock from whoever holds it; say --force if that is what you want")
			}
			return o.release(cmd.Context(), cmd.OutOrStdout(), keys[0])
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "yes, from whoever holds it")
	return cmd
}

func (o *operator) release(ctx context.Context, out io.Writer, key string) error {
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	state, err := client.Inspect(ctx, key)
	if err != nil {
		return failure(err)
	}
	before := reportOn(state)
	if o.json {
		err = writeJSON(out, before)
	} else {
		err = before.print(out)
	}
	if err != nil {
		return err
	}
	if err := client.ForceRelease(ctx, key); err != nil {
		return failure(err)
	}
	switch {
	case o.json:
	case slices.ContainsFunc(state.Nodes, func(n redlock.NodeState) bool { return n.Held }):
		fmt.Fprintf(out, "%s was released\n", oneLine(key))
	default:
		fmt.Fprintln(out, "there was nothing to release")
	}
	return nil
}
