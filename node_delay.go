package redlock

import "time"

// After how long a node is late. A round that waits for it then asks the others too (A2).

// hedgeMargin is the least that is added to a node's usual delay: timers are not more exact, and a pause of this process
// must not have every round ask all nodes.
const hedgeMargin = 2 * time.Millisecond

// noteDelay takes a sample. The reader calls it, and comeUp before there is a reader. A sample that is longer than votes
// are waited for says that this process stood still, or the node did: only the first one on a connection counts.
func (n *node) noteDelay(sample time.Duration) {
	if n.delay.mean == 0 || sample <= n.cfg.NodeTimeout {
		n.late.Store(int64(n.delay.add(sample) + n.protocol.lateMargin))
	}
}

// noteAcquire takes a sample from an acquire.
func (n *node) noteAcquire(q request) {
	if q.sampled && !q.later {
		n.noteDelay(q.heard.Sub(q.round.t0))
	}
}

// A delay follows how long a node takes to answer: the time in this process, on the network and on the server. Its
// estimate is that of TCP's retransmission timer (RFC 6298, section 2), with one sample a flush: under load delays grow
// together, and then all nodes are as late as this one.
type delay struct{ mean, deviation time.Duration }

// add adds a sample and returns after how long the node counts as late.
func (d *delay) add(sample time.Duration) time.Duration {
	if d.mean == 0 {
		d.mean, d.deviation = sample, sample/2
	} else {
		d.deviation += ((d.mean - sample).Abs() - d.deviation) / 4
		d.mean += (sample - d.mean) / 8
	}
	return d.mean + max(4*d.deviation, hedgeMargin)
}
