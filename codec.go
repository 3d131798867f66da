package redlock

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The arguments and the replies of all scripts. The head of each file in scripts/ describes them. No other code makes
// KEYS or ARGV, or reads a reply.

// A call is one script with its keys and arguments, for all nodes of a round. It does not change after it was made,
// because the commands of all nodes share it. encode adds what differs from node to node. The values are any, as redigo
// takes them, so that they are converted once for all nodes.
type call struct {
	script *script
	keys   []any
	args   []any
}

const (
	// reservationPrefix begins the value of a key that is reserved for a client; see scripts/release.lua.
	reservationPrefix = "next:"
	// reservationTime is how long a node reserves a key at least; see Client.reservation.
	reservationTime = 100 * time.Millisecond
)

// queueNow enters a client in the queue as a waiter that has just arrived (W2).
const queueNow int64 = 1

// encode appends the arguments of the command for one node.
func (q *request) encode(args []any, s *readiness, n *node) []any {
	r, node := q.round, n.index
	args = append(args, r.script.sha, len(r.keys))
	args = append(args, r.keys...)
	switch r.script.own {
	case ownMarker, ownShare:
		var entry any = no
		switch {
		case r.queueAt.has(node):
			entry = r.queueEntry
		case q.raised:
			entry = raisedArg
		case r.script.own == ownShare:
			entry = sinceArg(r.queueEntry)
		}
		args = append(args, s.marker, entry)
	case ownMarkerOnly:
		args = append(args, s.marker)
	case ownIdentity:
		args = append(args, s.identity, n.earliestAt(r.t0))
	}
	args = append(args, r.args...)
	if r.silentAt.has(node) {
		args[len(args)-len(r.args)+releaseReserve] = millis(0)
	}
	return args
}

// sinceArg tells a node that does not queue the client since when it waits elsewhere, if it does (S2).
func sinceArg(queueEntry int64) any {
	since := max(queueEntry, -queueEntry)
	if since <= queueNow {
		return no
	}
	return "=" + strconv.FormatInt(since, 10)
}

// ownArgs are the first arguments of a script, which differ from node to node.
type ownArgs uint8

const (
	ownNothing    ownArgs = iota
	ownMarker             // acquire.lua and fair.lua: the marker that the node must have, and how to enter the queue
	ownShare              // share.lua: the same, and to nodes that do not queue the client, since when it waits
	ownMarkerOnly         // adopt.lua: the marker
	ownIdentity           // ready.lua: the server's data set, and its clock when it was asked
	ownLease              // extend.lua: one command has several leases; see encodeRenewals
)

// Where the arguments of acquire.lua are, after those that differ from node to node.
const (
	acquireReservation = iota
	acquireToken
	acquireTTL
	acquireBallot
	acquireSlot
)

// releaseReserve is where release.lua is told how long a reservation lasts.
const releaseReserve = 1

// onlyLook is the ballot of an acquire that asks what a node would answer, and takes nothing (T1). It is below all others:
// -1.
const onlyLook uint64 = math.MaxUint64

var looks any = "-1"

// acquireCall asks for the lock. reservation is the value of a key that is reserved for this client, or "".
func (p *protocol) acquireCall(res *resource, reservation, token, ttlMillis any, ballot uint64) call {
	if res.isShared() {
		return call{p.share, res.share.keys, withFence(res, ballot, reservation, token, ttlMillis)}
	}
	return call{p.acquire, res.keys, withFence(res, ballot, reservation, token, ttlMillis)}
}

// plantCall writes the keys of a valid lease on a node that lacks them (R2).
func (p *protocol) plantCall(res *resource, token, ttlMillis any, ballot uint64) call {
	return call{p.plant, behindFence(res.keys...), withFence(res, ballot, token, ttlMillis)}
}

// behindFence is these keys behind that of the fencing tokens: scripts that are not sent often declare all that they touch.
// For the others each argument costs as much as half a command.
func behindFence(keys ...any) []any { return append([]any{fenceArg}, keys...) }

// withFence appends to these arguments the ballot and the fence slots that store it (F3), or "0" if there are no
// fencing tokens, or "-1" if it only looks.
func withFence(res *resource, ballot uint64, first ...any) []any {
	args := make([]any, 0, len(first)+1+len(res.slots))
	args = append(args, first...)
	switch ballot {
	case 0:
		return append(args, no)
	case onlyLook:
		return append(args, looks)
	}
	return append(append(args, int64(ballot)), res.slots...)
}

// extendCall renews a lease. The ballot is for the nodes that may take its keys.
func (p *protocol) extendCall(res *resource, token, ttlMillis any, ballot uint64) call {
	return call{p.extend, res.keys, withFence(res, ballot, token, ttlMillis)}
}

// encodeRenewals appends the arguments of extend.lua for all leases of the request.
func (q *request) encodeRenewals(args []any, s *readiness, node int) []any {
	keys := 2
	for r := range q.rounds {
		keys += len(r.keys)
	}
	args = append(args, q.round.script.sha, keys, markerArg, fenceArg)
	for r := range q.rounds {
		args = append(args, r.keys...)
	}
	args = append(args, s.marker)
	for r := range q.rounds {
		args = append(args, len(r.keys))
		ttl := r.args[1]
		if r.given != nil {
			ttl = fmt.Sprintf("%d:%d", ttl, r.given[node])
		}
		args = append(args, r.args[0], ttl)
		if r.takeAt.has(node) {
			args = append(args, r.args[2:]...)
		} else {
			args = append(args, takesNothing)
		}
	}
	return args
}

// parseRenewals reads the reply of extend.lua: the answer for each of so many leases.
func parseRenewals(count int, reply any, err error) []answer {
	answers := make([]answer, count)
	all, isList := reply.([]any)
	if err == nil && (!isList || len(all) != count+1) {
		err = notAReply("extend", reply)
	}
	for i := range answers {
		if err != nil {
			answers[i] = answer{vote: unknown, err: err}
			continue
		}
		answers[i] = parseRenewal(all[0], all[i+1])
	}
	return answers
}

func parseRenewal(serverTime, reply any) answer {
	micros, ok := serverTime.(int64)
	switch reply := reply.(type) {
	case int64:
		switch {
		case ok && (reply == 1 || reply == 3):
			return answer{vote: granted, micros: micros, unready: reply == 3}
		case ok && reply == 4:
			return answer{vote: granted, micros: micros, setBack: true}
		case ok && reply == 2:
			return answer{vote: granted, micros: micros, taken: true}
		case ok && reply == 0:
			return answer{vote: denied, micros: micros, denial: &denial{reason: missing}}
		}
	case redis.Error: // the others of this command were renewed all the same
		return answer{vote: unknown, err: reply}
	case []any:
		left, errLeft := redis.Int64(at(reply, 0))
		owner, errOwner := redis.String(at(reply, 1))
		if ok && errLeft == nil && errOwner == nil {
			return answer{vote: denied, micros: micros, denial: &denial{reason: held, left: timeLeft(left), owner: owner}}
		}
	}
	return answer{vote: unknown, err: notAReply("extend", reply)}
}

func notAReply(script string, reply any) error {
	return fmt.Errorf("the %s script replied %s, which is none of its replies", script, briefly(reply))
}

// briefly is the beginning of a reply, for people. What is no reply of a Redis server may be megabytes of anything.
func briefly(reply any) string {
	switch reply := reply.(type) {
	case nil, int64:
		return fmt.Sprint(reply)
	case []any:
		if len(reply) == 0 {
			return "an empty list"
		}
		return "a list that begins with " + briefly(reply[0])
	case error:
		return fmt.Sprintf("the error %.100q", reply.Error())
	default: // a text
		return fmt.Sprintf("%.100q", reply)
	}
}

// releaseCall deletes the keys of this owner. If a key has waiters, reserve is how long it is reserved for the first of
// them (W2); 0: it is not reserved. rest is how long the keys stay for a minimum hold (H2); 0: there is none.
func (p *protocol) releaseCall(keys []any, token any, reserve, rest time.Duration) call {
	if isEntry(token) {
		return call{p.unshare, keys, []any{token, millis(reserve)}}
	}
	return p.releaseMutexCall(keys, token, reserve, rest)
}

// releaseMutexCall is releaseCall for keys whose whole value is this text, also if it looks like an entry: it may come from
// a caller or from another program.
func (p *protocol) releaseMutexCall(keys []any, token any, reserve, rest time.Duration) call {
	args := []any{token, millis(reserve)}
	if rest > 0 {
		args = append(args, millis(rest))
	}
	return call{p.release, keys, args}
}

// swapCall gives keys from one owner token to another. ttlMillis is how long they live then; 0: as long as before. The
// script is always swap.lua, under the name of the operation.
func (p *protocol) swapCall(swap *script, keys []any, from, to, ttlMillis any) call {
	return call{swap, keys, []any{from, to, ttlMillis}}
}

// adoptCall gives the keys from a ticket's token to a new one (D4).
func (p *protocol) adoptCall(res *resource, from, to, ttlMillis any, ballot uint64) call {
	return call{p.adopt, append([]any{markerArg, fenceArg}, res.keys...), withFence(res, ballot, from, to, ttlMillis)}
}

// leaveCall takes this client out of the queues of these keys, and passes on what is reserved for it, for that long (W2).
func (p *protocol) leaveCall(keys []any, client any, reserve time.Duration) call {
	all := make([]any, 0, 4*len(keys))
	all = append(all, keys...)
	for _, prefix := range []string{waitPrefix, sharedPrefix, intentPrefix} {
		for _, key := range keys {
			all = append(all, prefix+key.(string))
		}
	}
	return call{p.leave, all, []any{client, millis(reserve)}}
}

// inspectCall reads the first lock key of the resource.
func (p *protocol) inspectCall(res *resource) call {
	return call{p.inspect, behindFence(res.keys[0]), res.slots[:1]}
}

// What ready.lua is asked to do; see its head.
const (
	wordLook    = "look"
	wordDurable = "durable"
	wordEnroll  = "enroll"
	wordNew     = "new"
	wordIsNew   = "new?"
	wordChange  = "change"
)

var readyKeys = []any{markerKey, quarantineKey, configKey, fenceKey}

// parse reads the reply of the script. keys is how many keys it was given.
func (s *script) parse(keys int, reply any, err error) answer {
	if err != nil {
		return answer{vote: unknown, err: err}
	}
	switch reply := reply.(type) {
	case int64:
		if !s.counts {
			return answer{vote: granted, micros: reply}
		}
		isReserved := reply < 0
		if max(reply, -reply) == int64(keys) {
			return answer{vote: granted, reserved: isReserved}
		}
		return answer{vote: denied, reserved: isReserved, denial: &denial{reason: gone}}
	case []any:
		if a, ok := parseArray(reply); ok {
			return a
		}
	}
	return answer{vote: unknown, err: notAReply(s.name, reply)}
}

// highestBallot reads the highest ballot of a slot. Another program may have written a score there that is no ballot, as
// inf. Scripts then say any number, mostly a negative one. It counts as one that is not believed (F2).
func highestBallot(reply any, err error) (uint64, error) {
	highest, err := redis.Int64(reply, err)
	if err == nil && (highest < 0 || highest > maxMicros) {
		highest = maxMicros
	}
	return uint64(highest), err
}

func parseArray(reply []any) (answer, bool) {
	kind, err := redis.String(at(reply, 0))
	if err != nil {
		return answer{}, false
	}
	micros, err := redis.Int64(at(reply, 1))
	if err != nil {
		return answer{}, false
	}
	a := answer{vote: denied, micros: micros, denial: &denial{}}
	switch kind {
	case "held", "taken", "behind", "key":
		left, errLeft := redis.Int64(at(reply, 2))
		owner, errOwner := redis.String(at(reply, 3))
		highest, errHighest := highestBallot(at(reply, 4))
		if errLeft != nil || errOwner != nil || errHighest != nil {
			return answer{}, false
		}
		mute := false
		if kind != "key" { // inspect.lua says what there is
			owner, mute = ownerIn(owner)
		}
		*a.denial = denial{reason: held, left: timeLeft(left), owner: owner, mute: mute, highest: highest}
		switch {
		case kind == "key": // inspect.lua only looked: its answer is no denial
			entries := reply[len(reply)-1]
			sharers, ok := parseSharers(entries, micros)
			a.vote, a.denial, a.found = granted, nil, &finding{denial: *a.denial, taken: left != noKey, notString: entries != nil, sharers: sharers}
			return a, ok
		case kind == "taken" || kind == "behind":
			return a, a.denial.parseQueue(kind, reply)
		case len(reply) > 5:
			return a, a.denial.parseFree(reply)
		}
	case "ballot":
		highest, err := highestBallot(at(reply, 2))
		if err != nil {
			return answer{}, false
		}
		*a.denial = denial{reason: stale, highest: highest}
	case "missing":
		a.denial.reason = missing
	case "ready":
		a.vote, a.denial = granted, nil
	case "differs":
		text, err := redis.String(at(reply, 2))
		if err != nil {
			return answer{}, false
		}
		return answer{vote: denied, micros: micros, err: otherConfig(text[:min(len(text), maxConfig)])}, true
	case "used":
		return answer{vote: denied, micros: micros, err: errUsed}, true
	case "new":
		return answer{vote: unknown, micros: micros, err: errLooksNew}, true
	case "unjudged":
		return answer{vote: unknown, micros: micros, err: errUnjudged}, true
	case "late":
		return answer{vote: unknown, micros: micros, err: errLate}, true
	case "quarantine":
		left, err := redis.Int64(at(reply, 2))
		if err != nil {
			return answer{}, false
		}
		*a.denial = denial{reason: inQuarantine, left: timeLeft(left)}
	case "unready": // the node's readiness has the reason, which then replaces errUnready
		return answer{vote: unknown, micros: micros, err: errUnready}, true
	default:
		return answer{}, false
	}
	return a, true
}

// maxConfig bounds the configuration that a node shows: no client has one as long. It is for people.
const maxConfig = 1 << 16

// otherConfig is the text of the configuration by which ready.lua refused this client (Q3).
type otherConfig string

func (o otherConfig) Error() string { return "the node's configuration is another: " + string(o) }

// noKey is what PTTL returns if there is no key.
const noKey = -2

func at(reply []any, i int) (any, error) {
	if i >= len(reply) {
		return nil, redis.ErrNil
	}
	return reply[i], nil
}

// readyCall asks a node whether it may grant, or says that it may (Q1, Q2). The script ready is always ready.lua, under the
// name of the operation. others are the run ids that the node's marker must not have (Client.runIDsBeside). The
// question must arrive within that time.
func (s *settings) readyCall(ready *script, word string, at moment, within time.Duration, others string) call {
	cfg := &s.cfg
	apart := cfg.NodeTimeout + cfg.MaxClockSkew // Q1: a question may be on its way for as long as a round takes
	if !s.protocol.omits(clocksApart) {
		apart += max(cfg.ClockBand, 0)
	}
	return call{ready, readyKeys, []any{s.agreement.digest, s.agreement.text, millis(cfg.MaxTTL),
		millis(apart), word, at.fleet, at.misread, apart.Microseconds(), within.Microseconds(), flag(!cfg.NoFence), others}}
}

// timeLeft is what a script's PTTL says: negative for ever, and no more than a Duration can be.
func timeLeft(millis int64) time.Duration {
	return time.Duration(min(millis, int64(never/time.Millisecond))) * time.Millisecond
}
