package check

import (
	"fmt"
	"slices"

	"github.com/quorumlock/redlock/chaos/history"
)

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
