package check

import (
	"fmt"
	"slices"

	"github.com/quorumlock/redlock/chaos/history"
)

// Planned is the scenario of a schedule of faults.
const Planned = "schedule"

// endGrants makes the verdict unsure if nobody ever held a lock: what grants nothing shows nothing, also where only a
// password or a port is wrong. In a schedule that is said of each lock, since the faults are for one of them. A scenario may
// have a lock that rightly nobody gets.
func (j *judge) endGrants() {
	held := func(o op) bool { return o.outcome == granted && o.believes > o.granted }
	if !slices.ContainsFunc(j.ops, held) {
		j.neverHeld("", len(j.answers[granted]))
		return
	}
	if j.run.Scenario != Planned {
		return
	}
	for _, l := range j.locks.all {
		if len(l.asked) > 0 && !slices.ContainsFunc(l.ops, func(i int32) bool { return held(j.ops[i]) }) {
			j.neverHeld(l.name, len(l.ops))
		}
	}
}

// neverHeld says that a lock was never held, though there were so many leases. "" is for all locks.
func (j *judge) neverHeld(resource string, leases int) {
	reason := "no acquire was granted"
	if leases > 0 {
		reason = fmt.Sprintf("nobody believed in any of %d leases for any time", leases)
	}
	j.leaveOut("everything", resource, reason)
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
