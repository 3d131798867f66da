package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quorumlock/redlock"
)

// What became of each node, after redlock enroll.

// Whether a node is enrolled, in JSON.
const (
	enrolledNow     = "now"
	enrolledAlready = "already"
	enrolledNot     = "no"
)

// An enrolment is what became of the nodes.
type enrolment struct{ diagnosis }

// whatBecame says of each node whether it is enrolled, given its status before and after that, and the error.
func (o *enroller) whatBecame(before, after []redlock.NodeStatus, err error) enrolment {
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
	return enrolment{d}
}

// report prints a line of JSON about every node, also if some or all of them were not enrolled.
func (e enrolment) report(out io.Writer, err error) error {
	var exit *exitError
	if err != nil && !errors.As(err, &exit) {
		errors.As(failure(e.told(err)), &exit)
	}
	if exit == nil {
		return writeJSON(out, e.diagnosis)
	}
	e.failed(exit, exit.kind())
	if err := writeJSON(out, e.diagnosis); err != nil {
		return err
	}
	return &exitError{exit.code, nil}
}

// isRound reports whether the nodes were asked.
func isRound(err error) bool { return errors.As(err, new(*redlock.RoundError)) }

// those names the nodes of which this became.
func (e enrolment) those(became string) (names []string) {
	for _, n := range e.Nodes {
		if n.Enrolled == became {
			names = append(names, n.Node)
		}
	}
	return names
}

// enrolled names the nodes that are enrolled, those that were so before apart.
func (e enrolment) enrolled() string {
	now, already := e.those(enrolledNow), e.those(enrolledAlready)
	text := fmt.Sprintf("%s enrolled: %s", plural(len(now), "node"), strings.Join(now, ", "))
	switch {
	case len(now)+len(already) == 0:
		return "no node was enrolled"
	case len(now) == 0:
		return fmt.Sprintf("%s enrolled already: %s; nothing was changed", plural(len(already), "node"), strings.Join(already, ", "))
	case len(already) == 1:
		text += "; 1 was already: " + already[0]
	case len(already) > 1:
		text += fmt.Sprintf("; %d were already: %s", len(already), strings.Join(already, ", "))
	}
	return text
}

// told adds to an error which nodes are enrolled, and which are not and why.
func (e enrolment) told(err error) error {
	refused, all := nodeErrors(err)
	if len(refused) == 0 {
		return err
	}
	why := reasons{all: all}
	for _, node := range refused {
		why.add(node.Node, withRemedy(sentence(node.Err))) // without the flags: see withFlag
	}
	return &retoldError{e.enrolled() + "; not enrolled: " + why.String(), err}
}
