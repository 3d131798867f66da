package check

import (
	"fmt"
	"slices"

	"github.com/quorumlock/redlock/chaos/history"
)

// checkArrival finds ops that were overtaken: they had their place in the order of arrival, and an op that was requested
// later was granted the lock before them.
//
// What is judged is what the subject promises: it says since when an op had its place. A place is on the nodes. So the
// promise is for an op that could reach a quorum of them without a fault until it was granted. The others are counted,
// and named as left out.
func (j *judge) checkArrival(l *lock) {
	if !j.anyQueued {
		return
	}
	latest, latestNow := int32(-1), int32(-1) // the op that was requested last, of those granted before; and at this time
	now := int64(-1)
	later := func(a, b int32) int32 {
		if a < 0 || b >= 0 && j.ops[b].asked > j.ops[a].asked {
			return b
		}
		return a
	}
	for _, i := range l.ops { // in the order of their grants
		o := &j.ops[i]
		if o.neverBelieved() { // it held nothing before anybody
			continue
		}
		if o.granted > now {
			now, latest, latestNow = o.granted, later(latest, latestNow), -1
		}
		if o.from < 0 {
			latestNow = later(latestNow, i)
		}
		if o.queued == 0 {
			if latest >= 0 && o.from < 0 && o.asked < j.ops[latest].asked-int64(OrphanMargin) { // see outOfOrder
				j.queuedUntold++
			}
			continue
		}
		j.queuedOps++
		switch {
		case !j.reachedQuorum(o):
			j.queuedHurt++
			o.queued = 0
		case latest >= 0 && j.ops[latest].asked > o.queued:
			j.overtaken(l, i, latest)
		}
	}
}

// endArrival names what checkArrival left out.
func (j *judge) endArrival() {
	switch {
	case j.run.Lock == history.Fair && !j.anyQueued:
		if slices.ContainsFunc(j.locks.all, j.outOfOrder) {
			j.leaveOut("order of arrival", "", "of no call is it known when it had its place")
			j.unsure = true
		}
	case j.queuedUntold > 0:
		j.leaveOut("order of arrival", "", fmt.Sprintf("%d acquires that did not say when they had their place "+
			"came after one that was requested long after them", j.queuedUntold))
	}
	if j.queuedHurt > 0 {
		j.leaveOut("order of arrival", "", fmt.Sprintf("%d of %d acquires that waited: faults left them no quorum of nodes",
			j.queuedHurt, j.queuedOps))
	}
}

// outOfOrder reports whether an op was granted the lock before one that was requested long before it: only then does it
// matter when that one had its place. Two that are requested at about the same time may come to the nodes in any order.
func (j *judge) outOfOrder(l *lock) bool {
	latest := int64(0)
	for _, i := range l.ops { // in the order of their grants
		if o := &j.ops[i]; o.from < 0 {
			if o.asked < latest-int64(OrphanMargin) {
				return true
			}
			latest = max(latest, o.asked)
		}
	}
	return false
}

func (j *judge) overtaken(l *lock, i, by int32) {
	l.wrongHolders++
	j.res.Overtakings++
	o, other := &j.ops[i], &j.ops[by]
	j.violate(Overtaken, l, []int32{by, i}, other.granted, o.granted-other.granted, func() string {
		return fmt.Sprintf("%s had its place in the order of arrival of %q since %s; "+
			"%s requested it at %s, and was granted it first, at %s", j.name(i), l.name, clock(o.queued),
			j.name(by), clock(other.asked), clock(other.granted))
	})
}

// reachedQuorum reports whether enough nodes for a quorum had no fault, for the client of the op, while it had its place
// and was not granted the lock.
func (j *judge) reachedQuorum(o *op) bool {
	hurt := map[string]bool{}
	for _, f := range j.faults {
		switch {
		case f.from > o.granted || f.heal < o.queued || f.client != 0 && f.client != o.client:
		case f.node == "":
			return false
		default:
			hurt[f.node] = true
		}
	}
	return len(j.run.Nodes)-len(hurt) >= j.quorum()
}
