package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/quorumlock/redlock"
)

// What is said of nodes that do not do what they should.

// askDoctor is what to do about an outage.
const askDoctor = "redlock doctor says why and what to do"

// unanswered says of the error of redlock.AgreedConfig which nodes do not answer.
func unanswered(err error) error {
	var round *redlock.RoundError
	if !errors.As(err, &round) {
		return err
	}
	return &retoldError{fmt.Sprintf("too few nodes answer (%d of %d, and it takes %d): %s; %s",
		round.Granted, round.Granted+round.Denied+round.Unknown, round.Need, nodesAndCauses(err), askDoctor), err}
}

// toDoctor adds to an error that has an exit code what to do, if it is an outage.
func toDoctor(err error) error {
	code, _, why := codeOf(err)
	if code != exitNoQuorum {
		return err
	}
	return &exitError{code, &retoldError{sentence(why) + "; " + askDoctor, why}}
}

// notAwaited is the library's text for a node that did nothing wrong: the round was over before it answered.
const notAwaited = "no answer before the others decided the round"

// nodesAndCauses names the nodes that did not grant, and why: nodes with the same reason together.
func nodesAndCauses(err error) string {
	var round *redlock.RoundError
	if !errors.As(err, &round) || round.Err == nil {
		return sentence(err)
	}
	why := reasons{all: round.Granted + round.Denied + round.Unknown}
	for _, err := range round.Err.Errors {
		if n := (*redlock.NodeError)(nil); errors.As(err, &n) && n.Err.Error() != notAwaited {
			why.add(printable(n.Node), causeOf(n.Err))
		}
	}
	if len(why.list) == 0 {
		return sentence(err)
	}
	return why.String()
}

// causeOf is a node's reason in a few words: of an error of the network without what was tried, and with which address.
func causeOf(err error) string {
	var errno syscall.Errno
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" && errors.As(network.Err, &errno) {
		return errno.Error()
	}
	text, _ := problemOf(err)
	return text
}
