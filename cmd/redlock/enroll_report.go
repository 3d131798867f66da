package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorumlock/redlock"
)

// What became of each node, after redlock enroll.

// Whether a node is enrolled, in JSON.
const (
	enrolledNow     = "now"
	enrolledAlready = "already"
	enrolledNot     = "no"
)

// report prints a line of JSON about every node, also if some or all of them were not enrolled.
func (o *enroller) report(out io.Writer, before, after []redlock.NodeStatus, err error) error {
	refused, _ := nodeErrors(err)
	why := map[string]string{}
	for _, node := range refused {
		why[node.Node] = withRemedy(sentence(node.Err))
	}
	d := diagnose(after, o.quorum)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		was := before[i].MaxTTL != 0
		reason := why[before[i].Name]
		if reason != "" && isDiffering(after[i].Err) {
			reason = n.Problem // it has the flags
		}
		switch {
		case reason != "":
			n.Enrolled, n.NotEnrolled = enrolledNot, reason
		case was && !o.changeConfig:
			n.Enrolled = enrolledAlready
		case err == nil, after[i].Err == nil && !was, o.changeConfig && after[i].Err == nil && isRound(err):
			n.Enrolled = enrolledNow
		case was: // --change-config was not confirmed
			n.Enrolled = enrolledAlready
		case n.Problem != "":
			n.Enrolled, n.NotEnrolled = enrolledNot, n.Problem
		default:
			n.Enrolled, n.NotEnrolled = enrolledNot, "it does not vote"
		}
	}
	var exit *exitError
	if err != nil && !errors.As(err, &exit) {
		errors.As(failure(o.whichEnrolled(err, before)), &exit)
	}
	if exit == nil {
		return writeJSON(out, d)
	}
	d.failed(exit, exit.kind())
	if err := writeJSON(out, d); err != nil {
		return err
	}
	return &exitError{exit.code, nil}
}

// isRound reports whether the nodes were asked.
func isRound(err error) bool { return errors.As(err, new(*redlock.RoundError)) }

// whichEnrolled adds to an error how many nodes are enrolled, and which were not and why. before is their status before
// that.
func (o *enroller) whichEnrolled(err error, before []redlock.NodeStatus) error {
	refused, all := nodeErrors(err)
	if len(refused) == 0 {
		return err
	}
	why := reasons{all: all}
	not := map[string]bool{}
	for _, node := range refused {
		why.add(node.Node, withRemedy(sentence(node.Err)))
		not[node.Node] = true
	}
	changed := o.changeConfig
	for _, s := range before {
		changed = changed || s.MaxTTL == 0 && !not[s.Name]
	}
	text := fmt.Sprintf("%d of %s enrolled", all-len(refused), plural(all, "node"))
	if !changed {
		if all > len(refused) {
			text += " already"
		}
		text += ", nothing was changed"
	}
	return &retoldError{text + "; not enrolled: " + why.String(), err}
}
