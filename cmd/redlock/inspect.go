package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spf13/cobra"
)

const inspectHelp = `Asks every node for the owner of KEY, the time until it expires, and the largest fencing token that it knows. The
owner is what the holder says of itself: by default the host name and the process id, and what the lock is held for.
--json has the owner token too.

No lease of KEY has a larger fencing token. The holder's may be smaller, because a refused try can raise it: do not give
this number to a resource, which would then refuse the holder.

  held     a quorum of the nodes has KEY for one owner
  free     a quorum votes and has KEY for nobody
  partial  somebody is acquiring or releasing the lock, or failed to; what is left of it expires. Or other data, which
           never expires, is on so many nodes that the others that vote are no quorum. Or a node with the lock is away
  unknown  too few nodes vote

A node in quarantine, or an unfit one, does not vote: it may have forgotten that it granted the lock.

If readers, or holders of permits, share the lock, it lists them.

--all lists every lock that is held, partial or unknown, in the order of the names. It finds them with SCAN on every
node, which the Redis user must be allowed to do (+scan). SCAN reads all keys of a server, some hundred at a time, so
with millions of other keys it takes a while. With a prefix (--prefix) only keys that begin with it are looked at
further. Keys that are no locks of this library are left out.

--owner GLOB lists only locks of owners that match it; without KEY, those of --all. It is compared with the host and
process, with the label in brackets behind them, and with both as they are shown: 'web-3/*', 'nightly-*',
'web-3/4711 (nightly-report)'. * and ? match no slash. Of a lock that several share, one of them is enough.

inspect does not take the lock: a moment later somebody else may hold it. A reservation (a released key that is reserved
for the next waiter for a short time) counts as not held.

Exit code: 0 a quorum of the nodes votes and answered for every KEY, 69 too few did, 64 usage, 1 the nodes refuse SCAN.`

// An inspector is one redlock inspect.
type inspector struct {
	operator
	all bool
}

func newInspect() *cobra.Command {
	o := &inspector{operator: looking()}
	cmd := &cobra.Command{
		Use:   "inspect [flags] (KEY [KEY...] | --all | --owner GLOB)",
		Short: "Show who holds a lock, for how long, and the largest fencing token",
		Long:  inspectHelp,
		Example: "  redlock inspect --nodes a:6379,b:6379,c:6379 nightly\n" +
			"  redlock inspect --all\n  redlock inspect --owner 'web-3/*' --json",
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, keys []string) error {
			_, badGlob := path.Match(o.owner, "")
			switch {
			case o.given("owner") && (o.owner == "" || badGlob != nil):
				return usage("--owner %s: give a pattern for owners, such as 'web-3/*'", brief(o.owner))
			case o.all && len(keys) > 0:
				return usage("give each KEY, or --all, not both")
			case len(keys) == 0 && !o.all && o.owner == "":
				return usage("%s needs a KEY, --all or --owner; see %[1]s --help", cmd.CommandPath())
			}
			return stoppable(cmd, func(ctx context.Context) error { return o.inspect(ctx, cmd.OutOrStdout(), keys) })
		},
	}
	o.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "list all locks that are held; needs the right to SCAN")
	flags.Lookup("owner").Usage = "list only locks whose holder matches this `GLOB`; without KEY, of all that are held"
	return cmd
}

func (o *inspector) inspect(ctx context.Context, out io.Writer, keys []string) error {
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	scanned, missing := len(keys) == 0, false
	if scanned {
		if keys, missing, err = o.find(ctx, client); err != nil {
			return err
		}
	}
	shown, told := 0, false // told: a line of JSON has the error
	for _, key := range keys {
		state, err := client.Inspect(ctx, key)
		if state == nil {
			return failure(err)
		}
		missing = missing || err != nil
		report := reportOn(state)
		if o.leavesOut(state, report, scanned) {
			continue
		}
		if err != nil {
			report.failed(errTooFewVotes, kindOf(exitNoQuorum))
			told = true
		}
		switch {
		case o.json:
			err = writeJSON(out, report)
		default:
			if shown > 0 {
				fmt.Fprintln(out)
			}
			err = report.print(out)
		}
		if err != nil {
			return err
		}
		shown++
	}
	if missing && !o.json && (scanned || o.owner != "") {
		fmt.Fprintln(out, "unknown: too few nodes vote or answer, so more locks may be held")
	}
	switch {
	case missing && o.json && told:
		return &exitError{exitNoQuorum, nil}
	case missing:
		return &exitError{exitNoQuorum, errTooFewVotes}
	case shown == 0 && !o.json && o.owner != "":
		_, err = fmt.Fprintln(out, "no such lock is held")
	case shown == 0 && !o.json:
		_, err = fmt.Fprintln(out, "no lock is held")
	}
	return err
}

var errTooFewVotes = errors.New("too few nodes vote; " + askDoctor)
