package redlock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"
)

// The light form of an acquire (A2): two plain commands, which cost a server about half of what acquire.lua does. Most
// locks are free, have one name, and nobody waits for them.
//
//	SET key token NX PX ttl                     the key was free, and is now ours
//	ZADD redlock:fence GT CH ballot slot        1: the ballot is above the highest, and is stored (F2)
//
// Once per flush, behind all of them on the same connection, the marker and the server's time are read. A grant counts
// only if the marker is right when it is read, and so after the key was written: the node could grant then (Q1), and the
// key was there. The time is read before them too. The key was written by a clock between the two: a clock that is set
// in between shows as one that is not known well (C1).
//
// A refusal falls back to the script, with the same token, on this node alone. The script says who is in the way. If the
// ballot was too low, the key has been written: it gets the release (A5). Others may have been refused because of it.

var (
	askTimeFirst = &command{name: "TIME", done: (*node).learnFirstTime}
	askMarker    = &command{name: "GET", args: []any{markerKey}, done: (*node).learnMarker}
	askLightTime = &command{name: "TIME", done: (*node).answerLights}
)

// A lightVote is an acquire in light form that took the key, and waits for the marker.
type lightVote struct {
	request
	err error // why the vote is unknown whatever the marker is; nil: it grants if the marker is right
}

// maySendLight reports whether to send this request in its light form. n.mu is held.
func (n *node) maySendLight(q *request) bool {
	r := q.round
	return r != nil && n.light && n.unfit == nil && !q.full && r.script == n.protocol.acquire && len(r.keys) == 1 && !r.queueAt.has(n.index) &&
		r.args[acquireReservation] == "" && n.readiness.ready
}

// lighten has the acquires of a flush sent in their light form, if there are enough of them, and adds what such a flush
// ends with: the marker and the time. n.mu is held.
func (n *node) lighten(batch []request) []request {
	light := 0
	for i := range batch {
		if n.maySendLight(&batch[i]) {
			light++
		}
	}
	if light < n.protocol.minLight || light == 0 {
		return batch
	}
	for i := range batch {
		batch[i].light = n.maySendLight(&batch[i])
	}
	before := []request{{command: askTimeFirst}, {command: askMarker}}
	if !n.protocol.omits(markerReadLast) {
		before, batch = before[:1], append(batch, before[1])
	}
	return slices.Insert(append(batch, request{command: askLightTime}), 0, before...)
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
	v := lightVote{request: q, err: err}
	above := true
	if n.hasBallot(q.round) {
		reply, err := conn.Receive()
		if err != nil && !isRefusal(err) {
			n.lights = append(n.lights, lightVote{request: q, err: err})
			return err
		}
		if v.err == nil {
			v.err = err
		}
		above = reply == int64(1) || n.protocol.omits(fenceCompared)
	}
	switch {
	case v.err != nil:
		n.repair(q.round, v.err)
		n.balk(q.round, v.err)
	case reply == nil || !above:
		q.round.lightRefused(n.index, reply != nil)
		if !n.sendFull(q) { // the round is over: nobody waits for more than that the node refused
			q.round.concede(1 << n.index)
		}
		return nil
	}
	n.lights = append(n.lights, v)
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
	n.queue = append(n.queue, request{round: q.round, full: true, later: true})
	n.wakeUp()
	return true
}

// learnMarker compares the marker, which is read behind a flush's light acquires.
func (n *node) learnMarker(_ request, reply any, err error) {
	text, isText := reply.([]byte)
	n.mu.Lock()
	defer n.mu.Unlock()
	marker, _ := n.readiness.marker.(string)
	n.marked = err == nil && isText && string(text) == marker
}

// learnFirstTime notes the server's time before a flush's light acquires; 0: it is not known.
func (n *node) learnFirstTime(_ request, reply any, err error) {
	n.lightSince, _ = serverTime(reply, err)
}

// answerLights counts the votes of a flush's light acquires. The marker was read just before the time.
func (n *node) answerLights(q request, reply any, err error) {
	heard := n.cfg.Clock.Now()
	micros, err := serverTime(reply, err)
	if err == nil {
		q.sampled = true
		n.observe(q, micros, heard)
	}
	n.mu.Lock()
	vouchedAt := n.vouchedAt
	n.mu.Unlock()
	var why error
	switch {
	case err != nil:
		why = fmt.Errorf("TIME: %w", err)
	case n.lightSince == 0:
		why = errors.New("TIME was not answered")
	case !n.marked && !n.protocol.omits(markerChecked):
		why = n.unready()
	default:
		n.voted()
	}
	n.countLights(func(v *lightVote) answer {
		v.overdue = !v.vouched && heard.Sub(vouchedAt) > vouchReach
		n.noteDelay(v.request, heard)
		switch {
		case v.err != nil:
			return answer{vote: unknown, err: v.err}
		case why != nil:
			return answer{vote: unknown, err: why}
		}
		clock := span{low: clockSpan(min(n.lightSince, micros), v.sentAt, heard).low,
			high: clockSpan(max(n.lightSince, micros), v.sentAt, heard).high}
		return answer{vote: granted, micros: micros, clock: clock}
	})
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
