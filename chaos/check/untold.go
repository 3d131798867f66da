package check

import (
	"fmt"
	"slices"

	"github.com/quorumlock/redlock/chaos/history"
)

// endGrants makes the verdict unsure if nobody ever held the lock: what grants nothing shows nothing, also where only a
// password or a port is wrong.
func (j *judge) endGrants() {
	if slices.ContainsFunc(j.ops, func(o op) bool { return o.outcome == granted && o.believes > o.granted }) {
		return
	}
	reason := "no acquire was granted"
	if n := len(j.answers[granted]); n > 0 {
		reason = fmt.Sprintf("nobody believed in any of %d leases for any time", n)
	}
	j.leaveOut("everything", "", reason)
	j.unsure = true
}

// endUntold names what the subject does not say, which the judge could not check, or only by the TTL.
func (j *judge) endUntold() {
	if n := j.untold[history.Validity]; n > 0 {
		j.leaveOut(history.Validity, "", fmt.Sprintf("the subject does not say whether a lease is valid: "+
			"%d of %d leases counted as valid for a TTL from their request", n, len(j.answers[granted])))
	}
	some := slices.ContainsFunc(j.locks.all, func(l *lock) bool { return l.largest > 0 })
	if j.untold[history.FencingTokens] > 0 && !some { // else endFences says it
		j.leaveOut(history.FencingTokens, "", "the subject has none")
	}
}
