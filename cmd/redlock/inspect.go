package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

const inspectHelp = `Asks every node for the owner of KEY, the time until it expires, and the largest fencing token that it knows. The
owner is what the holder says of itself: by default the host name and the process id, and what the lock is held for.
--json has the owner token too.

No lease of KEY has a larger fencing token. The holder's may be smaller, because a refused try can raise it: do not give
this number to a resource, which would then refuse the holder.

  held     a quorum of the nodes has KEY for one owner
  free     a quorum votes and has KEY for nobody
  partial  somebody is acquiring or releasing the lock, or failed to; what is left of it expires
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
	case shown == 0 && !o.json:
		_, err = fmt.Fprintln(out, "no such lock is held")
	}
	return err
}

var errTooFewVotes = errors.New("too few nodes vote; redlock doctor says why and what to do")

// A lockReport is what inspect prints.
type lockReport struct {
	Key   string           `json:"key"`
	State string           `json:"state"` // held, free, partial or unknown
	Held  bool             `json:"held"`
	Nodes []nodeLockReport `json:"nodes"`
	// Sharers is who has it on a quorum, if several share it: readers, or holders of permits.
	Sharers []sharerReport `json:"sharers,omitempty"`
	Votes   int            `json:"votes"`
	Quorum  int            `json:"quorum"`
	holding
	jsonFailure
}

type sharerReport struct {
	Token           string `json:"token"`
	Owner           string `json:"owner,omitempty"`
	Label           string `json:"label,omitempty"`
	Slots           []int  `json:"slots,omitempty"`   // which permits it has; none: it is a reader
	Permits         int    `json:"permits,omitempty"` // of how many
	RemainingMillis int64  `json:"remaining_millis"`
}

func (s sharerReport) String() string {
	who, left := holding{Owner: s.Owner, Label: s.Label, Token: s.Token}.holder(), time.Duration(s.RemainingMillis)*time.Millisecond
	if s.Permits == 0 {
		return fmt.Sprintf("%s reads, for %v unless it is renewed", who, left)
	}
	return fmt.Sprintf("%s has %s (slot %s of %d), for %v unless it is renewed", who, plural(len(s.Slots), "permit"),
		strings.Trim(fmt.Sprint(s.Slots), "[]"), s.Permits, left)
}

type nodeLockReport struct {
	Node     string `json:"node"`
	Votes    bool   `json:"votes"`
	Held     bool   `json:"held"`
	Reserved bool   `json:"reserved,omitempty"`
	Problem  string `json:"problem,omitempty"`
	holding
}

type holding struct {
	Owner           string `json:"owner,omitempty"` // Config.Owner
	Label           string `json:"label,omitempty"` // Lock.WithOwner
	Token           string `json:"token,omitempty"`
	RemainingMillis int64  `json:"remaining_millis"` // -1: it never expires
	Fence           uint64 `json:"fence"`
	Foreign         bool   `json:"foreign,omitempty"` // it is not a lock of this library, or never expires
}

func hold(held bool, token string, sharers []redlock.Sharer, holder redlock.Holder, fence uint64) holding {
	h := holding{Owner: holder.Owner, Label: holder.Label, Token: token, RemainingMillis: holder.Remaining.Milliseconds(), Fence: fence}
	h.Foreign = held && len(sharers) == 0 && (!isToken(token) || holder.Remaining < 0)
	if holder.Remaining < 0 {
		h.RemainingMillis = -1
	}
	return h
}

// holder returns the owner in readable form. A key that is not a string has none.
func (h holding) holder() string {
	switch {
	case h.Token == "":
		return "something that is not a lock"
	case h.Owner == "":
		return printable(h.Token) + foreign(h.Token)
	}
	return printable(redlock.Holder{Owner: h.Owner, Label: h.Label}.String())
}

// foreign says that another library or program wrote the value; "": this one did, or there is none.
func foreign(value string) string {
	switch {
	case value == "", value == "readers", value == "permits", isToken(value): // see [redlock.State.Sharers]
		return ""
	}
	return " (not a lock of this library)"
}

// until says for how long the owner has it.
func (h holding) until() string {
	if h.RemainingMillis < 0 {
		return "without expiry"
	}
	return "for " + h.remaining() + " unless it is renewed"
}

func (h holding) remaining() string {
	if h.RemainingMillis < 0 {
		return "for ever"
	}
	return (time.Duration(h.RemainingMillis) * time.Millisecond).String()
}

func reportOn(s *redlock.State) lockReport {
	holder, _ := s.Holder()
	l := lockReport{Key: s.Name, Held: s.Held, Votes: s.Votes, Quorum: s.Quorum, holding: hold(s.Held, s.Token, s.Sharers, holder, s.Fence)}
	free := 0
	for _, n := range s.Nodes {
		holder, _ := n.Holder()
		r := nodeLockReport{Node: n.Node, Votes: n.Err == nil, Held: n.Held, Reserved: n.Reserved, holding: hold(n.Held, n.Token, n.Sharers, holder, n.Fence)}
		if n.Err != nil {
			r.Problem, _ = problemOf(n.Err)
		} else if !n.Held {
			free++
		}
		l.Nodes = append(l.Nodes, r)
	}
	for _, who := range s.Sharers {
		h := who.Holder()
		l.Sharers = append(l.Sharers, sharerReport{who.Token, h.Owner, h.Label, who.Slots, who.Permits, who.Remaining.Milliseconds()})
	}
	switch {
	case s.Votes < s.Quorum:
		l.State = "unknown"
	case s.Held:
		l.State = "held"
	case free >= s.Quorum:
		l.State = "free"
	default:
		l.State = "partial"
	}
	return l
}

// having lists on how many nodes each owner has the lock, the owner with the most nodes first.
func (l lockReport) having() string {
	on, names := map[string]int{}, map[string]string{}
	for _, n := range l.Nodes {
		if n.Held {
			on[n.Token]++
			names[n.Token] = n.holder()
		}
	}
	owners := slices.SortedFunc(maps.Keys(on), func(a, b string) int {
		return cmp.Or(cmp.Compare(on[b], on[a]), cmp.Compare(a, b))
	})
	for i, owner := range owners {
		owners[i] = fmt.Sprintf("%s has it on %d of %s", names[owner], on[owner], plural(len(l.Nodes), "node"))
	}
	return strings.Join(owners, ", ")
}

func (l lockReport) print(out io.Writer) error {
	key, all := printable(l.Key), plural(len(l.Nodes), "node")
	having := l.having()
	switch l.State {
	case "unknown":
		fmt.Fprintf(out, "%s: unknown: too few nodes vote (%d of %s, and it takes %d)", key, l.Votes, all, l.Quorum)
		if having != "" {
			fmt.Fprintf(out, "; %s", having)
		}
		fmt.Fprintln(out)
	case "held":
		if len(l.Sharers) > 0 {
			fmt.Fprintf(out, "%s is shared by %d on a quorum (which is %d of %s); largest fencing token %d\n", key, len(l.Sharers), l.Quorum, all, l.Fence)
			for _, s := range l.Sharers {
				fmt.Fprintf(out, "  %v\n", s)
			}
			break
		}
		on := 0
		for _, n := range l.Nodes {
			if n.Held && n.Token == l.Token {
				on++
			}
		}
		fmt.Fprintf(out, "%s is held by %s on %d of %s, %s; largest fencing token %d\n",
			key, l.holder(), on, all, l.until(), l.Fence)
	case "partial":
		fmt.Fprintf(out, "%s is being taken or released, or the rest of it expires: %s, and it takes %d; largest fencing token %d\n",
			key, having, l.Quorum, l.Fence)
	default:
		fmt.Fprintf(out, "%s is free: nobody has it on a quorum (which is %d of %s)", key, l.Quorum, all)
		if having != "" {
			fmt.Fprintf(out, "; %s, left by a try that failed or has just ended", having)
		}
		fmt.Fprintf(out, "; largest fencing token %d\n", l.Fence)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tOWNER\tLEFT\tFENCING TOKEN\tVOTES")
	for _, n := range l.Nodes {
		votes := "yes"
		if !n.Votes {
			votes = "no: " + n.Problem
		}
		owner, left := "–", "–"
		switch {
		case n.Held:
			owner, left = n.holder(), n.remaining()
		case n.Reserved:
			owner = "reserved for a waiter"
		case !n.Votes && n.Fence == 0:
			owner = "?"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", printable(n.Node), owner, left, n.Fence, votes)
	}
	return table.Flush()
}
