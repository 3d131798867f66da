package redlock

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The light form of an acquire (A2): two plain commands, which cost a server about half of what acquire.lua does. Most
// locks are free, have one name, and nobody waits for them.
//
//	SET key token NX PX ttl                     the key was free, and is now ours
//	ZADD redlock:fence GT CH ballot slot        1: the ballot is above the highest, and is stored (F2)
//
// Several acquires in one flush go out so. A single one does so too if the server is near and its clock was read a moment
// ago. From farther away a refusal would cost a second round trip; and where the clock must be read first, the script is
// as cheap: it is one command instead of five.
//
// Once per flush, behind all of them on the same connection, vouch.lua reads the marker and the server's time. A
// grant counts only if the marker is right when it is read, and so after the key was written: the node could grant
// then (Q1), and the key was there. The server's clock must also be known from before the key was written, because
// the key expires by that clock: if it was set in between, the two readings show it (C1), and the vote is unknown.
//
// A refusal falls back to the script, with the same token, on this node alone. The script says who is in the way. If the
// ballot was too low, the key has been written: it gets the release (A5). Others may have been refused because of it.

// nearTrip is the usual round trip up to which a server is near.
const nearTrip = time.Millisecond

var (
	errClockUnread = errors.New("it did not tell its time before the acquire")
	errClockMoved  = errors.New("its clock was set while it acquired, so its vote is not counted")
)

// askClock reads the server's clock ahead of light acquires.
var askClock = &command{name: "TIME", done: (*node).learnClock}

func (n *node) learnClock(q request, reply any, err error) {
	micros, err := serverTime(reply, err)
	if err != nil {
		n.clockSpan = span{}
		return
	}
	n.noteClock(clockSpan(micros, q.sentAt, q.heard), q.sentAt)
}

// noteClock notes a reading of the server's clock, which was asked for at that moment.
func (n *node) noteClock(clock span, asked Instant) {
	n.clockSpan = clock
	n.mu.Lock()
	n.readClock = asked
	n.mu.Unlock()
}

// A markerQuestion is the command that reads the marker and the time. It is kept, because it is sent with most flushes.
type markerQuestion struct {
	marker  any
	command command
}

// askMarker is the markerQuestion for this marker. n.mu is held.
func (n *node) askMarker() *command {
	if marker := n.readiness.marker; n.markerAsked == nil || n.markerAsked.marker != marker {
		n.markerAsked = &markerQuestion{marker, command{name: "EVALSHA", args: []any{n.protocol.vouch.sha, 1, markerArg, marker},
			done: (*node).answerLights}}
	}
	return &n.markerAsked.command
}

// A lightVote is an acquire in light form that took the key, and waits for the marker.
type lightVote struct {
	request
	before span  // the server's clock, read before the key was written; zero: it is not known
	err    error // why the vote is unknown whatever the marker is; nil: it grants if the marker is right
}

// maySendLight reports whether to send this request in its light form. n.mu is held.
func (n *node) maySendLight(q *request) bool {
	r := q.round
	return r != nil && n.light && n.unfit == nil && n.readiness.ready && !q.full && !r.full &&
		r.script == n.protocol.acquire && len(r.keys) == 1 && r.args[acquireReservation] == "" && !r.queueAt.has(n.index)
}

// lighten has the acquires of a flush sent in their light form, and adds what such a flush ends with: the marker and the
// time. It begins with the time, if that was last read too long ago. n.mu is held.
func (n *node) lighten(batch []request, now Instant) []request {
	light := 0
	for i := range batch {
		if batch[i].light = n.maySendLight(&batch[i]); batch[i].light {
			light++
		}
	}
	unread := now.Sub(n.readClock) > vouchInterval
	isFar := time.Duration(n.trip.Load()) > nearTrip
	if light == 0 || light == 1 && (unread || isFar) && !n.protocol.lightAlone {
		for i := range batch {
			batch[i].light = false
		}
		return batch
	}
	vouch := request{command: n.askMarker()}
	if n.protocol.omits(markerReadLast) {
		batch = append([]request{vouch}, batch...)
	} else {
		batch = append(batch, vouch)
	}
	if unread {
		batch = append([]request{{command: askClock}}, batch...)
	}
	return batch
}

// sendLight writes the commands of the light form.
func (n *node) sendLight(conn redis.Conn, args []any, r *round) ([]any, error) {
	args = append(args[:0], r.keys[0], r.args[acquireToken], setNX, setPX, r.args[acquireTTL])
	if err := conn.Send("SET", args...); err != nil || !n.hasBallot(r) {
		return args, err
	}
	args = append(args[:0], fenceArg, zaddGT, zaddCH, r.args[acquireBallot], r.args[acquireSlot])
	return args, conn.Send("ZADD", args...)
}

// hasBallot reports whether the acquire has a ballot.
func (n *node) hasBallot(r *round) bool {
	return len(r.args) > acquireSlot && !n.protocol.omits(fenceStored)
}

// answerLight takes the replies to the light form. The first one has been received already. An error means that the
// connection broke.
func (n *node) answerLight(conn redis.Conn, q request, reply any, err error) error {
	v := lightVote{request: q, before: n.clockSpan, err: err}
	above, raised := true, false
	if n.hasBallot(q.round) {
		reply, err := conn.Receive()
		if err != nil && !isRefusal(err) {
			n.lights = append(n.lights, lightVote{request: q, err: err})
			return err
		}
		if v.err == nil {
			v.err = err
		}
		raised = reply == int64(1)
		above = raised || n.protocol.omits(fenceCompared)
	}
	switch {
	case v.err != nil:
		n.repair(q, v.err)
		n.balk(q.round, v.err)
	case reply == nil || !above:
		q.round.lightRefused(n.index, reply != nil)
		if !n.sendFull(request{round: q.round, full: true, later: true, raised: raised}) {
			q.round.concede(1 << n.index) // the round is over: nobody waits for more than that the node refused
		}
		return nil
	}
	n.lights = append(n.lights, v)
	if n.vouchedFirst != nil {
		n.countLights(n.vouchedFirst)
	}
	return nil
}

// sendFull sends an acquire as a script, after its light form was refused. It reports whether it did: once the round is
// over, a release may be queued already, and nothing may follow it.
func (n *node) sendFull(q request) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.round.closed.Load() {
		return false
	}
	n.queue = append(n.queue, q)
	n.wakeUp()
	return true
}

// answerLights counts the votes of a flush's light acquires.
func (n *node) answerLights(q request, reply any, err error) {
	if err != nil && isForgotten(err) {
		n.mu.Lock()
		if !n.askedAgain {
			// The keys are written: ask once more, behind the script. What was to vouch for the data set came before
			// the marker is read, so ask for that once more too (Q1).
			n.askedAgain = true
			n.reload(request{command: n.askMarker()}, request{command: n.askReplication()})
			n.mu.Unlock()
			return
		}
		n.reload()
		n.mu.Unlock()
	}
	n.askedAgain = false
	a := n.protocol.vouch.parse(1, reply, err)
	if a.micros != 0 {
		q.sampled = true
		n.observe(q, a.micros)
	}
	after := clockSpan(a.micros, q.sentAt, q.heard)
	n.mu.Lock()
	vouchedAt := n.vouchedAt
	n.mu.Unlock()
	switch {
	case a.vote == granted:
		n.voted()
	case n.protocol.omits(markerChecked):
		a.err = nil
	case a.err == errUnready:
		a.err = n.unreadyNow()
	}
	vote := func(v *lightVote) answer {
		v.overdue = !v.vouched && q.heard.Sub(vouchedAt) > vouchReach
		v.heard = q.heard // the vote came only now
		n.noteAcquire(v.request)
		switch {
		case v.err != nil:
			return answer{vote: unknown, err: v.err}
		case a.err != nil:
			n.balk(v.round, a.err)
			return answer{vote: unknown, err: a.err}
		case v.before == span{}:
			return answer{vote: unknown, err: errClockUnread}
		case !v.round.tally.isSteady(v.before, after): // else its winner would wait for as long as the clock was set (C2)
			return answer{vote: unknown, err: errClockMoved}
		}
		both := span{low: min(v.before.low, after.low), high: max(v.before.high, after.high), loose: true}
		return answer{vote: granted, micros: a.micros, clock: both}
	}
	if n.protocol.omits(markerReadLast) {
		n.vouchedFirst = vote
		return
	}
	n.countLights(vote)
}

// countLights counts the votes of the light acquires that wait for the marker. The reader calls it, and run when no
// reader is left.
func (n *node) countLights(vote func(*lightVote) answer) {
	for i := range n.lights {
		v := &n.lights[i]
		if a := vote(v); a.vote == granted {
			n.countVouched(v.request, a)
		} else {
			v.round.record(n.index, a)
		}
		*v = lightVote{}
	}
	n.lights = n.lights[:0]
}
