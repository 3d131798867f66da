package check

import (
	"fmt"
	"slices"
	"sort"
)

// withoutToken is how many ops were granted a lock and have no token, so that it is not known when another took it.
func (j *judge) withoutToken() (count int) {
	for _, l := range j.locks.all {
		for _, i := range l.ops {
			if j.ops[i].token == "" {
				count++
			}
		}
	}
	return count
}

// withSharedToken is how many ops were granted a lock and have the token of another client's, so that it cannot be seen when
// one took the lock from the other. A token may be handed over with the lock.
func (j *judge) withSharedToken() (count int) {
	for _, l := range j.locks.all {
		for _, ops := range l.tokens {
			ops = slices.DeleteFunc(slices.Clone(ops), func(i int32) bool { return j.ops[i].outcome != granted || j.ops[i].from >= 0 })
			if slices.ContainsFunc(ops, func(i int32) bool { return j.ops[i].client != j.ops[ops[0]].client }) {
				count += len(ops)
			}
		}
	}
	return count
}

// takenBy notes that a token of an unknown owner took the lock while a holder believed, who may be a reader.
func (l *lock) takenBy(took int, fromReader bool) {
	if l.strange == nil {
		l.strange = map[int]bool{}
	}
	only, again := l.strange[took]
	l.strange[took] = fromReader && (only || !again)
}

// strangeTakings counts the moments at which a token of an unknown owner took the lock from a holder that believed, and
// that no call explains. One that was not granted, or not yet, may have left its token on a quorum of nodes: not every
// vote counts. And a reader whose token is not known takes nothing from another reader.
func (j *judge) strangeTakings(l *lock) (count int) {
	if len(l.strange) == 0 {
		return 0
	}
	hidden, last := int64(never), int64(-1)
	until := make([]int64, len(l.asked)) // when the last of the calls up to this one was answered
	for n, i := range l.asked {
		o := &j.ops[i]
		answered := o.over
		if o.outcome == granted {
			answered = o.granted
		}
		if o.reader && o.token == "" {
			hidden = min(hidden, o.asked)
		}
		last = max(last, answered)
		until[n] = last
	}
	for k, fromReader := range l.strange {
		took := l.took[k]
		n := sort.Search(len(l.asked), func(n int) bool { return j.ops[l.asked[n]].asked > took.at })
		if waits := n > 0 && until[n-1] >= took.since; !waits && !(fromReader && hidden <= took.at) {
			count++
		}
	}
	return count
}

// shouldBeSeen reports whether observers had the time to see the lock's owners, and should know them by their tokens.
// What nobody believes in for longer than [OrphanGrace] cannot be lost late by more than that. A library that shows no
// tokens says that its keys are not for others to read: nothing is expected of its observers.
func (j *judge) shouldBeSeen(l *lock) bool {
	if names := j.run.Observed; len(names) > 0 && !slices.Contains(names, l.name) {
		return false
	}
	believed := int64(0)
	for _, i := range l.ops {
		if o := &j.ops[i]; o.token != "" {
			believed += o.believes - o.granted
		}
	}
	return believed > int64(OrphanGrace)
}

// endOwners names the checks of owners that were not made, or not for all leases.
func (j *judge) endOwners() {
	if j.res.OwnerEvents == 0 && len(j.answers[granted]) > 0 {
		none := true
		for _, l := range j.locks.all {
			if j.shouldBeSeen(l) {
				j.neverSeen("orphans and late losses", l)
				none = false
			}
		}
		if none {
			j.leaveOut("orphans and late losses", "", "the keys on the nodes were not observed")
		}
		return
	}
	if hidden := j.withoutToken(); hidden > 0 {
		j.leaveOut("late losses", "", fmt.Sprintf("of %d leases the owner token is not known", hidden))
	}
	if shared := j.withSharedToken(); shared > 0 {
		j.leaveOut("late losses", "", fmt.Sprintf("%d of %d leases have the owner token of another client",
			shared, len(j.answers[granted])))
	}
	for _, l := range j.locks.all {
		j.endOwnersOf(l)
	}
}

// neverSeen names a lock whose key was on no node, though its holders show their owner tokens.
func (j *judge) neverSeen(check string, l *lock) {
	j.leaveOut(check, l.name, fmt.Sprintf("no key %q was seen on any node: does the lock add a prefix? Then let Token return \"\"", l.name))
	j.unsure = true
}

func (j *judge) endOwnersOf(l *lock) {
	if strange := j.strangeTakings(l); strange > 0 {
		j.leaveOut("late losses", l.name, fmt.Sprintf("a token of an unknown owner took it %s while a holder believed", times(strange)))
	}
	nodes := len(l.nodes.all)
	if nodes == 0 && j.shouldBeSeen(l) {
		j.neverSeen("late losses", l)
		return
	}
	if nodes < j.quorum() && j.shouldBeSeen(l) {
		j.leaveOut("late losses", l.name, fmt.Sprintf("owners were seen on %d of %d nodes, and a quorum is %d", nodes, len(j.run.Nodes), j.quorum()))
		j.unsure = true
		return // so it is no wonder that tokens were not seen
	}
	unseen, some := j.unseen(l)
	if !some && j.shouldBeSeen(l) {
		unseen, j.unsure = len(l.ops), true
	}
	if some && j.shouldBeSeen(l) && j.neverOnQuorum(l) {
		j.leaveOut("late losses", l.name, fmt.Sprintf("no owner token was seen on a quorum of nodes at a time, which is %d", j.quorum()))
		j.unsure = true
	}
	if unseen > 0 {
		j.leaveOut("late losses", l.name, fmt.Sprintf("the owner tokens of %d of %d leases were not seen on any node", unseen, len(l.ops)))
	}
}

// neverOnQuorum reports whether no token was seen on a quorum of nodes, though observers had the time: there were leases
// longer than [OrphanGrace], during which no node had a fault. A lock that is not on a quorum cannot be seen to change its owner.
func (j *judge) neverOnQuorum(l *lock) bool {
	if slices.ContainsFunc(l.took, func(t taking) bool { return len(l.tokens[t.token]) > 0 }) {
		return false
	}
	believed := int64(0)
	for _, i := range l.ops {
		if o := &j.ops[i]; o.token != "" && o.believes-o.granted > int64(OrphanGrace) && !j.nodesHurt(o.asked, o.believes) {
			believed += o.believes - o.granted
		}
	}
	return believed > int64(OrphanMargin)
}

// nodesHurt reports whether a node had a fault between these times, other than of the network.
func (j *judge) nodesHurt(from, to int64) bool {
	return slices.ContainsFunc(j.faults, func(f *fault) bool { return !f.ofNetwork() && f.from <= to && from <= f.heal })
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// unseen counts the leases whose token was on no node, though the observers should have seen it. They do not see each:
// many leases are shorter than the time between two looks. But one that lasted for longer than [OrphanMargin] should be
// seen; and so should one during which a quorum of nodes had a token of an unknown owner, because that may be its. some
// reports whether the token of any lease was seen.
func (j *judge) unseen(l *lock) (count int, some bool) {
	if len(l.nodes.all) == 0 {
		return 0, false
	}
	unknown := make([][]window, 0, len(l.nodes.all)) // by node: when it certainly had a token of an unknown owner
	for _, k := range l.nodes.all {
		var there []window
		for _, s := range k.spans {
			ops := l.tokens[s.token]
			// A client may have the same token again: it was that of the op that was requested last, and of those after it.
			first := sort.Search(len(ops), func(n int) bool { return j.ops[ops[n]].asked > s.from })
			for _, i := range ops[max(first-1, 0):] {
				if j.ops[i].asked >= s.to {
					break
				}
				j.ops[i].seen = true
			}
			if len(ops) == 0 && s.from < s.seen {
				there = append(there, window{s.from, s.seen})
			}
		}
		unknown = append(unknown, merged(there))
	}
	for _, i := range l.ops {
		o := &j.ops[i]
		if o.token == "" || o.seen {
			some = some || o.seen
			continue
		}
		nodes := 0
		for _, there := range unknown {
			if anyIn(there, o.granted, o.believes) {
				nodes++
			}
		}
		if o.believes-o.granted > int64(OrphanMargin) || !o.shared && nodes >= j.quorum() {
			count++
		}
	}
	return count, some
}

// anyIn reports whether one of the windows, which are in order and disjoint, has a part between from and to.
func anyIn(windows []window, from, to int64) bool {
	i, _ := slices.BinarySearchFunc(windows, from, func(w window, t int64) int {
		if w.to <= t {
			return -1
		}
		return 1
	})
	return i < len(windows) && windows[i].from < to
}
