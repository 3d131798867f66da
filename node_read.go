package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// read hands each reply to the request that it answers, until the connection breaks.
func (n *node) read(s *session) error {
	var heard Instant // when the last reply came, or a little later
	for {
		reply, err := s.conn.Receive()
		if err != nil && !isRefusal(err) {
			return err
		}
		if s.link.fresh() { // else the reply came together with the one before: at the same time
			heard = n.cfg.Clock.Now()
			n.heardAt.Store(int64(heard))
		}
		n.mu.Lock()
		if n.flight.len() == 0 {
			n.mu.Unlock()
			return fmt.Errorf("it sent %s, but no request was waiting for an answer", briefly(reply))
		}
		q := n.flight.pop()
		q.overdue = !q.vouched && heard.Sub(n.vouchedAt) > vouchReach
		n.answering.Store(true)
		n.mu.Unlock()
		q.heard = heard
		err = n.handle(s, q, reply, err)
		n.answering.Store(false)
		if err != nil {
			return err
		}
		if n.isClosing() { // run may wait for this
			n.wakeUp()
		}
	}
}

// handle hands one reply to its request. An error ends the connection.
func (n *node) handle(s *session, q request, reply any, err error) error {
	if q.light {
		return n.answerLight(s.conn, q, reply, err)
	}
	n.answer(q, reply, err)
	if q.round == nil {
		return n.impostorNoticed()
	}
	return nil
}

// isRefusal reports whether the error is the server's answer, and not the end of the connection.
func isRefusal(err error) bool {
	var refusal redis.Error
	return errors.As(err, &refusal)
}

// answer hands one reply to its request. For a round it makes the node's vote of it. A grant that no INFO has vouched
// for in time waits for one (Q1).
func (n *node) answer(q request, reply any, err error) {
	if q.round == nil {
		q.command.done(n, q, reply, err)
		return
	}
	if err != nil {
		if n.repair(q, err) {
			q.round.staysOpen(n.index, err)
			return
		}
		n.balk(q.round, err)
	}
	if q.round.script.own == ownLease {
		n.answerRenewals(q, reply, err)
		return
	}
	a := q.round.script.parse(len(q.round.keys), reply, err)
	if a.micros != 0 {
		a.clock = clockSpan(a.micros, q.sentAt, q.heard)
		n.observe(q, a.micros)
	}
	if q.round.script.takes {
		n.noteAcquire(q)
	}
	if d := a.denial; d != nil && d.reason == stale {
		if err := n.notBelieved(d.highest); err != nil {
			a = answer{vote: unknown, micros: a.micros, clock: a.clock, err: err}
			n.balks.Store(int64(n.cfg.Clock.Now().Add(balkTime)))
		}
	}
	switch said := a.err.(type) {
	case otherConfig:
		a.err = n.cfg.differences(string(said))
	default:
		if said == errUnready && q.round.script.own == ownIdentity {
			a.err = errOtherProcess
		} else if said == errUnready {
			a.err = n.unreadyNow()
		} else if said != nil && hasCode(said, wrongType) {
			a.err = n.wrongKey(said)
		}
	}
	switch {
	case a.vote == granted && q.vouched, a.vote == granted && q.overdue && q.round.script.takes:
		n.countVouched(q, a)
		return
	case a.vote != unknown && q.round.script.grants:
		n.voted()
	}
	q.round.record(n.index, a)
}

// countVouched counts a grant as soon as an INFO has vouched for it (Q1).
func (n *node) countVouched(q request, a answer) {
	switch {
	case q.vouched:
		n.unvouched = append(n.unvouched, heldVote{q.round, a})
	case q.overdue && !n.protocol.omits(dataSetVouched):
		n.vouchLate(q, a)
	default:
		q.round.record(n.index, a)
	}
}

// repair does what an error reply makes necessary: scripts that the server forgot are loaded again, and a release that
// was refused is owed. It reports whether the round goes on here: its command is sent again behind the scripts. An acquire
// is not, because its release may already be queued behind it.
func (n *node) repair(q request, err error) (goesOn bool) {
	r, forgotten := q.round, isForgotten(err) // so it was not run
	n.mu.Lock()
	defer n.mu.Unlock()
	if forgotten {
		n.reload()
	}
	if hasCode(err, "READONLY") { // it is a replica now, and may soon have another server's data
		n.vouchedAt = longAgo
	}
	// After MaxTTL, the keys that the server should have deleted have expired, although it refused: forget the release (L3).
	if r.script.cleansUp && n.cfg.Clock.Now().Sub(r.t0) <= n.cfg.MaxTTL {
		d := r.debt(false)
		if !forgotten {
			d.round = nil // its vote is unknown now
		}
		n.owe(d)
		return forgotten
	}
	// Behind this, only the releases of both tokens may be queued (D5): they are sent again behind it, or leave it no key.
	if forgotten && r.script == n.protocol.swap && !q.again {
		n.queue = append(n.queue, request{round: r, again: true})
		return true
	}
	return false
}

// isForgotten reports whether the server no longer has the script.
func isForgotten(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// reload loads all scripts again, because a server that forgot one forgot all, and then sends these requests. Otherwise a
// hand-over could still miss its script after the lease has ended. What is refused before the first reply came before the
// scripts, so it needs no others. n.mu is held for all requests, because the wake-up is for all.
func (n *node) reload(then ...request) {
	if !n.reloading {
		n.reloading = true
		for _, s := range n.protocol.scripts() {
			n.queue = append(n.queue, request{command: s.load()})
		}
	}
	n.queue = append(n.queue, then...)
	n.wakeUp()
}

// reloaded sends the releases that are owed, once the first script was loaded: some may be owed because theirs was not
// there. All scripts are ahead of them. Where these cannot be loaded, they wait like all that were refused (L3). If a script
// is not there, the votes show it.
func (n *node) reloaded(_ request, _ any, err error) {
	n.mu.Lock()
	first := n.reloading
	n.reloading = false
	if first && err == nil {
		n.resendOwed(n.cfg.Clock.Now(), maxRetried)
	}
	n.mu.Unlock()
	n.wakeUp()
}

// hasCode reports whether the server's error has this code. The error begins with it; but before Redis 7, one of a command
// in a script begins with where that is, once or twice (scripting.c, evalGenericCommand and luaPushError):
//
//	ERR Error running script (call to f_80d1…): @user_script:7: WRONGTYPE Operation against a key …
//	ERR Error running script (call to f_39a4…): @user_script:7: @user_script: 7: -READONLY You can't write …
func hasCode(err error, code string) bool {
	const place = "@user_script:"
	text := err.Error()
	if said, ok := strings.CutPrefix(text, "ERR Error running script (call to f_"); ok {
		_, text, _ = strings.Cut(said, "): ")
	}
	for strings.HasPrefix(text, place) {
		text = strings.TrimLeft(text[len(place):], " 0123456789")
		text = strings.TrimPrefix(text, ": ")
	}
	return strings.HasPrefix(strings.TrimPrefix(text, "-"), code)
}

// balkTime is how long a node is not asked first after it answered an acquire with an error: out of memory, a failed
// disk, a missing right. It is still asked for its vote.
const balkTime = 3 * time.Second

// balk notes that the server answered an acquire with an error, so that it is not asked first for balkTime. A server
// that has forgotten its scripts does not count: it gets them again (repair).
//
// Of the keys that a lock needs, a wrong type is most likely that of the marker or of the tokens, because something else
// was written there. Then only ready.lua can help: to it, what is no string is no marker (Q1), and it says of the tokens'
// key that it must be deleted.
func (n *node) balk(r *round, err error) {
	n.askWhyRefused(err)
	if !r.script.grants || !isRefusal(err) || isForgotten(err) {
		return
	}
	now := n.cfg.Clock.Now()
	was := n.isBalking(now)
	n.balks.Store(int64(now.Add(balkTime)))
	if !was && hasCode(err, wrongType) {
		n.askReady()
	}
}

// askWhyRefused asks ready.lua, at most once every healthInterval, if the server says that the user may not do what a script
// does: the user's rights have changed while the connection was open. Nothing else would tell Status and the log, because a
// node that counts as ready is not asked.
func (n *node) askWhyRefused(err error) {
	if !hasCode(err, "NOPERM") && !strings.Contains(err.Error(), "user executing the script can't") {
		return
	}
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	ask := n.readiness.ready && now.Sub(n.askedWhy) >= healthInterval
	if ask {
		n.askedWhy = now
	}
	n.mu.Unlock()
	if ask {
		n.askReady()
	}
}

const wrongType = "WRONGTYPE" // begins the error of a server where a key is of another type than a command wants

// wrongKey is the error, or what ready.lua said of it: that names the key.
func (n *node) wrongKey(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if why := n.readiness.why; why != nil && hasCode(why, wrongType) {
		return why
	}
	return err
}
