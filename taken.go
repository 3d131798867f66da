package redlock

import (
	"slices"
	"time"
)

// A lease may be taken away while its holder relies on it: by ForceRelease, or by ReleaseToken. Whoever does it then
// sends the holder's client a message. That is a hint, which anybody may send: the lease is lost when the nodes say so.

// sayTaken tells the client of this owner that the key was taken from it. It is called when the nodes have answered the
// release and the look after it, so what the holder asks them now comes after that. A user that may not publish tells nobody.
func (c *Client) sayTaken(owner string, key any) {
	id := ownersClient(tokenOf(owner))
	if id == "" {
		return
	}
	if id == c.waiters.id {
		c.taken(key.(string))
		return
	}
	for _, n := range c.nodes {
		n.command("PUBLISH", []any{takenPrefix + id, key}, ignoreReply)
	}
}

// taken is called for a message that this key was taken from a lease of this client.
func (c *Client) taken(key string) {
	for _, o := range c.scheduler.all() {
		if slices.Contains(o.lock.res.keys, any(key)) {
			o.check()
		}
	}
}

// check asks the nodes that had the keys whether they still have them. It takes nothing, and asks for no more time than
// the keys have. A reader's entry may come in the place of the writer's key (S4), and has that time too. Further hints do
// not begin another check before this one is over.
func (o *ownership) check() {
	c := o.client
	o.mu.Lock()
	if o.ended != nil || o.checking != nil && o.checking.result() == undecided {
		o.mu.Unlock()
		return
	}
	now := c.cfg.Clock.Now()
	left := max(time.Millisecond, o.written.Add(o.lock.ttl).Sub(now))
	ask := c.protocol.extendCall(o.lock.res, o.tokenArg, millis(left), o.ballot)
	r := c.newRound(plan{call: ask, t0: now, only: o.hadKeys(), proven: c.allNodes(), plants: o.plants,
		renewed: o, answered: o.checked})
	o.checking = r
	_, unsent := c.enqueue(r, r.only, 0)
	o.mu.Unlock()
	r.recordUnsent(unsent)
}

// checked is called with each node's answer to a check. If so many nodes lack the keys that no quorum is left, the
// lease is lost (R3). Otherwise it goes on: the next renewal decides.
func (o *ownership) checked(r *round, _ int, a answer, _ verdict, _ bool) {
	if a.vote != denied {
		return
	}
	if _, votes := r.snapshot(); votes.refused(r.only) {
		o.lose(r.error(ErrLost, o.lock.res.names, o.client.nodes, "it was taken away"))
	}
}
