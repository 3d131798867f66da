package redlock

// Renewals in batches: leases that are due together share one command a node, because a command costs a server and the
// client more than a lease in it. Each lease keeps a round of its own, and learns its own answer.

// maxRenewed is how many keys the renewals of one command have at most (a lease has up to maxNames of its own). A server
// does nothing else while it runs a script. So many keys take it less than a millisecond; BenchmarkRenewals shows it.
const maxRenewed = 128

// mergeRenewals makes one request of several renewals. They may overtake other requests of the same batch: no renewal is sent
// after the release of its lease, and an acquire of it that is still in the batch, because other nodes granted it, then finds
// keys that have its token already.
func mergeRenewals(batch []request) []request {
	into, keys := -1, 0 // the request that takes in more renewals, and its keys
	kept := batch[:0]
	for _, q := range batch {
		if q.round == nil || q.round.script.own != ownLease || q.again {
			kept = append(kept, q)
			continue
		}
		if count := len(q.round.keys); into >= 0 && keys+count <= maxRenewed {
			kept[into].more = append(kept[into].more, q.round)
			keys += count
			continue
		}
		into, keys = len(kept), len(q.round.keys)
		kept = append(kept, q)
	}
	clear(batch[len(kept):])
	return kept
}

// answerRenewals makes the node's vote for each lease of one extend.lua. A node that took keys has granted, and not only
// extended. So its vote waits until an INFO has vouched for the data set (Q1). The same holds for one that has the keys and
// was not vouched for since then; if it may not grant, it does not count (R1). With Durable, an unfit one never does: it may
// not persist what it renews, and vote at once after a restart with what it had persisted before.
func (n *node) answerRenewals(q request, reply any, err error) {
	if !q.again && (isForgotten(err) || len(q.more) > 0 && err != nil && hasCode(err, "NOPERM")) {
		n.renewOneByOne(q, err)
		return
	}
	answers := parseRenewals(1+len(q.more), reply, err)
	if micros := answers[0].micros; micros != 0 {
		n.observe(q, micros)
	}
	i := 0
	for r := range q.rounds {
		a := answers[i]
		i++
		if a.micros != 0 {
			a.clock = clockSpan(a.micros, q.sentAt, q.heard)
		}
		if a.err != nil && err == nil {
			n.repair(request{round: r}, a.err)
		}
		if (a.taken || a.setBack && r.takeAt.has(n.index)) && r.renewed != nil {
			r.renewed.took(n.index)
		}
		if a.vote == granted && r.renewed != nil {
			r.renewed.lapses(n.index)
		}
		// Asked again: what an earlier answer of this node told of these keys came after the renewal was sent.
		switch proven := r.proven.has(n.index) && (r.renewed == nil || r.renewed.provenAt().has(n.index)); {
		case a.vote != granted:
		case a.unready && (!proven || n.cfg.Durable && n.unfitNow() != nil):
			a.vote, a.err = unknown, n.noTaker()
		case !proven && a.setBack && r.tally.clocks != nil:
			if a.vote, a.err = unknown, errClockSet; r.granting != nil {
				r.granting(n.index) // it has the keys
			}
		case !proven && !n.protocol.omits(dataSetVouched):
			n.vouchLate(request{round: r, sentAt: q.sentAt}, a)
			continue
		}
		if a.denial != nil && a.denial.reason == missing && r.takeAt.has(n.index) {
			a.vote, a.err = unknown, n.noTaker()
		}
		r.record(n.index, a)
	}
}

// renewOneByOne sends each lease of a command that the server refused once more, in a command of its own. A server looks
// at the keys of a command before it runs the script. So one key that the user may not use would cost every lease of the
// command this node's vote (R1). What is refused then concerns that lease alone. And a server that had forgotten the script
// has it again by then.
func (n *node) renewOneByOne(q request, refusal error) {
	for r := range q.rounds {
		send := func() {
			n.mu.Lock()
			n.queue = append(n.queue, request{round: r, again: true})
			n.mu.Unlock()
		}
		if r.renewed == nil { // a trial's, which waits for the answer and takes no keys
			send()
		} else if !r.renewed.whileHeld(r, send) {
			r.record(n.index, answer{vote: unknown, err: refusal})
		}
	}
	n.wakeUp()
}

// noTaker is why the server took no keys for a lease that never had them there, or has them and does not count: it may not
// grant now, but perhaps later.
func (n *node) noTaker() error {
	if unfit := n.unfitNow(); unfit != nil {
		return unfit
	}
	return n.unreadyNow()
}

func (n *node) unfitNow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unfit
}
