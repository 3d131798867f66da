package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

// An operator is what all commands for operators share.
type operator struct{ clientFlags }

// looking is an operator that only looks at nodes which hold no configuration.
func looking() operator { return operator{clientFlags{looks: true}} }

func newDoctor() *cobra.Command {
	o := looking()
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what makes the lock unsafe or slow on these nodes, and what to do about it",
		Long: `Checks every node:
  - Can it be reached, and does the login work?
  - Is it a master? Can it evict keys, or forget them?
  - Does its clock agree with the clocks of the others? How long does a round trip take?
  - Is it in quarantine?
  - Does its user have the rights that a lock needs? For this, doctor takes the lock doctor/RANDOM for a moment.

Exit code: 0 every node votes, 1 at least one has no vote, 64 usage.`,
		Example: "  redlock doctor --nodes a:6379,b:6379,c:6379,d:6379,e:6379",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stoppable(cmd, func(ctx context.Context) error { return o.doctor(ctx, cmd.OutOrStdout()) })
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *operator) doctor(ctx context.Context, out io.Writer) error {
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	status, err := try(ctx, client)
	if err != nil {
		return err
	}
	report := diagnose(status, o.quorum)
	if missing := len(report.Nodes) - report.Votes; missing > 0 {
		report.failed(fmt.Errorf("%s of %d without a vote", plural(missing, "node"), len(report.Nodes)), kindNoVote)
	}
	if o.json {
		err = writeJSON(out, report)
	} else {
		err = report.print(out)
	}
	if err == nil && report.Votes < len(report.Nodes) {
		err = &exitError{exitFailed, nil}
	}
	return err
}

// A diagnosis is what doctor prints.
type diagnosis struct {
	Nodes  []nodeReport `json:"nodes"`
	Votes  int          `json:"votes"`
	Quorum int          `json:"quorum"`
	Advice []string     `json:"advice,omitempty"` // about all nodes together
	jsonFailure
}

type nodeReport struct {
	Node             string   `json:"node"`
	Votes            bool     `json:"votes"`
	Connected        bool     `json:"connected"`
	Problem          string   `json:"problem,omitempty"`
	Enrolled         string   `json:"enrolled,omitempty"`     // of enroll: now, already or no
	NotEnrolled      string   `json:"not_enrolled,omitempty"` // why it was not
	Warnings         []string `json:"warnings,omitempty"`
	Role             string   `json:"role,omitempty"`
	Version          string   `json:"version,omitempty"`
	RunID            string   `json:"run_id,omitempty"`
	LatencyMicros    int64    `json:"latency_micros"`
	ClockMicros      int64    `json:"clock_offset_micros"`
	QuarantineMillis int64    `json:"quarantine_millis"`
	MaxTTLMillis     int64    `json:"max_ttl_millis"`

	quarantined bool
	besides     string // what else costs it its vote, behind a semicolon: the end of its quarantine does not mend that
	unbegun     string // what to print for its quarantine if that has not begun; "": it has, or there is none
}

func diagnose(status []redlock.NodeStatus, quorum int) diagnosis {
	d := diagnosis{Quorum: quorum}
	switch n := len(status); {
	case n == 1:
		d.Advice = append(d.Advice, "one node alone tolerates no failure, and there is no other clock to compare its clock with; use three or five nodes")
	case n%2 == 0:
		d.Advice = append(d.Advice, fmt.Sprintf("%d nodes tolerate no more failures than %d would; remove one, or add one", n, n-1))
	}
	differing := 0 // how many nodes hold another configuration
	for _, s := range status {
		if isDiffering(s.Err) {
			differing++
		}
	}
	for _, s := range status {
		n := nodeReport{Node: printable(s.Name), Votes: s.Err == nil, Connected: s.Connected, Warnings: allPrintable(s.Warnings), Role: printable(s.Role),
			Version: printable(s.Version), RunID: s.RunID, LatencyMicros: s.Latency.Microseconds(), ClockMicros: s.ClockOffset.Microseconds(),
			QuarantineMillis: s.Quarantine.Milliseconds(), MaxTTLMillis: s.MaxTTL.Milliseconds()}
		for i, w := range n.Warnings {
			if strings.Contains(w, "nknown command") { // no right helps, though the warning says which to give
				n.Warnings[i] = withRemedy(w)
			}
		}
		if s.Latency > slowRoundTrip {
			n.Warnings = append(n.Warnings, fmt.Sprintf("a round trip takes %v; set NodeTimeout (--node-timeout) to several times that (its default is 250ms)",
				s.Latency.Round(time.Millisecond)))
		}
		if s.Err != nil {
			n.Problem = sentence(s.Err)
			if 2*differing > len(status) {
				n.Problem = withFlags(n.Problem, s.Err)
			}
			n.Problem = withRemedy(n.Problem)
			n.quarantined = errors.As(s.Err, new(*redlock.QuarantineError))
			n.unbegun = unbegun(s.Err)
		} else {
			d.Votes++
		}
		d.Nodes = append(d.Nodes, n)
	}
	for i := range d.Nodes {
		quarantine := (*redlock.QuarantineError)(nil)
		if errors.As(status[i].Err, &quarantine) {
			d.Nodes[i].besides = besidesQuarantine(status[i].Err)
			d.Nodes[i].Problem = d.quarantine("", quarantine.Left) + d.Nodes[i].besides
		}
	}
	return d
}

// besidesQuarantine is what else is in the error of a node in quarantine, such as its clock, behind a semicolon.
func besidesQuarantine(err error) (text string) {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return ""
	}
	for _, err := range all.Unwrap() {
		if !errors.As(err, new(*redlock.QuarantineError)) {
			text += "; " + withRemedy(sentence(err))
		}
	}
	return text
}

// unbegun is what to print for the quarantine of a node that lacks one: nobody has begun it, or nobody can judge whether it
// needs one. "": neither.
func unbegun(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "no client has begun its quarantine"):
		return "not begun"
	case strings.Contains(text, "nothing can judge that"):
		return "?"
	}
	return ""
}

const slowRoundTrip = 50 * time.Millisecond

func (d diagnosis) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tVOTES\tROLE\tVERSION\tROUND TRIP\tCLOCK\tQUARANTINE")
	for _, n := range d.Nodes {
		if !n.Connected {
			fmt.Fprintf(table, "%s\tno\t–\t–\t–\t–\t–\n", n.Node)
			continue
		}
		votes, quarantine := "yes", cmp.Or(n.unbegun, "–")
		if !n.Votes {
			votes = "no"
		}
		if n.QuarantineMillis > 0 {
			quarantine = (time.Duration(n.QuarantineMillis) * time.Millisecond).Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%v\t%+v\t%s\n", n.Node, votes, n.Role, n.Version,
			time.Duration(n.LatencyMicros)*time.Microsecond, time.Duration(n.ClockMicros)*time.Microsecond, quarantine)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	d.printProblems(out)
	warnings := reasons{}
	for _, n := range d.Nodes {
		for _, w := range n.Warnings {
			warnings.add(n.Node, w)
		}
	}
	for _, w := range warnings.list {
		who := strings.Join(w.nodes, ", ")
		if len(w.nodes) > 1 {
			who += " (each)" // what follows is about one node
		}
		fmt.Fprintf(out, "! %s: %s\n", who, w.text)
	}
	for _, a := range d.Advice {
		fmt.Fprintf(out, "! %s\n", a)
	}
	mark, say := "✓", "a quorum"
	if d.Votes < d.Quorum {
		mark, say = "✗", "no quorum, so no lock can be acquired"
	}
	_, err := fmt.Fprintf(out, "%s %d of %s %s, and it takes %d: %s\n", mark, d.Votes, plural(len(d.Nodes), "node"), votes(d.Votes, len(d.Nodes)), d.Quorum, say)
	return err
}

// printProblems says each problem once, with the nodes that have it. Of those in quarantine, the table says how long each
// has left.
func (d diagnosis) printProblems(out io.Writer) {
	why := reasons{}
	var left int64
	for _, n := range d.Nodes {
		if n.quarantined {
			left = max(left, n.QuarantineMillis)
		}
	}
	for _, n := range d.Nodes {
		switch {
		case n.quarantined && n.QuarantineMillis > 0:
			why.add(n.Node, d.quarantine("up to ", time.Duration(left)*time.Millisecond)+n.besides)
		case n.Problem != "":
			why.add(n.Node, n.Problem)
		}
	}
	for _, r := range why.list {
		who := strings.Join(r.nodes, ", ")
		if len(r.nodes) > 1 {
			who += ": each" // what follows is about one node
		}
		fmt.Fprintf(out, "✗ %s has no vote: %s\n", who, r.text)
	}
}

// quarantine says why a node in quarantine has no vote, and what to do about it. Where the others are a quorum, waiting
// costs nothing, and is never wrong.
func (d diagnosis) quarantine(upTo string, left time.Duration) string {
	remedy := "it votes again by itself; only for nodes that nobody has used yet, `redlock enroll --only-new` ends this now"
	if d.Votes >= d.Quorum {
		remedy = "wait until it is over; the others vote"
	}
	return fmt.Sprintf("in quarantine for %s%v more: it is new, or it restarted or was flushed and may have forgotten leases (%s)",
		upTo, left.Round(100*time.Millisecond), remedy)
}

// votes returns the verb for n of all nodes.
func votes(n, all int) string {
	if n == 1 || all == 1 {
		return "votes"
	}
	return "vote"
}
