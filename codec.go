package redlock

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

// What the scripts are given and what they reply, one part for each script. The head of each scripts/*.lua says the same
// in its own words. Nothing else makes KEYS or ARGV, or reads a reply.

// A call is one script with its keys and arguments, for all nodes of a round. It is not changed after it was made: every
// node's command shares it. What differs from node to node is added by encode. Values are boxed here once, for redigo.
type call struct {
	script *script
	keys   []any
	args   []any
}

// queueNow enters a client in the queue of waiters as of now.
const queueNow int64 = 1

// encode appends the command's arguments for one node.
func (r *round) encode(args []any, s *readiness, node int) []any {
	args = append(args, r.script.sha, len(r.keys))
	args = append(args, r.keys...)
	switch r.script.own {
	case ownMarker:
		var entry any = no
		if r.queueAt.has(node) {
			entry = r.queueEntry
		}
		args = append(args, s.marker, entry)
	case ownIdentity:
		args = append(args, s.identity)
	}
	return append(args, r.args...)
}

// ownArgs are the first arguments of a script, which differ from node to node.
type ownArgs uint8

const (
	ownNothing  ownArgs = iota
	ownMarker           // acquire.lua: the node's marker, and how to enter the client in the queue
	ownIdentity         // ready.lua: the server's data set
)

// acquireCall asks for the lock. reservation is the value of a key that is reserved for this client, or "".
func (p *protocol) acquireCall(res *resource, reservation, token, ttlMillis any, ballot uint64) call {
	return call{p.acquire, res.keys, withFence(res, ballot, reservation, token, ttlMillis)}
}

// plantCall writes the keys of a lease that still stands on a node that lacks them.
func (p *protocol) plantCall(res *resource, token, ttlMillis any, ballot uint64) call {
	return call{p.plant, res.keys, withFence(res, ballot, token, ttlMillis)}
}

// withFence are these arguments, the ballot, and the slots in which it is kept; or "0" if there is no fencing token.
func withFence(res *resource, ballot uint64, first ...any) []any {
	args := make([]any, 0, len(first)+1+len(res.slots))
	args = append(args, first...)
	if ballot == 0 {
		return append(args, no)
	}
	return append(append(args, int64(ballot)), res.slots...)
}

// extendCall renews a lease.
func (p *protocol) extendCall(res *resource, token, ttlMillis any) call {
	return call{p.extend, res.keys, []any{token, ttlMillis}}
}

// releaseCall deletes the keys of this owner. A key that has waiters is reserved for the first of them for this time; 0:
// not at all. rest is how long the keys stay for a minimum hold; 0: there is none.
func (p *protocol) releaseCall(keys []any, token any, reserve, rest time.Duration) call {
	args := []any{token, millis(reserve)}
	if rest > 0 {
		args = append(args, millis(rest))
	}
	return call{p.release, keys, args}
}

// leaveCall takes this client out of the queues of these keys.
func (p *protocol) leaveCall(keys []any, client any) call {
	all := make([]any, 0, 2*len(keys))
	all = append(all, keys...)
	for _, key := range keys {
		all = append(all, waitPrefix+key.(string))
	}
	return call{p.leave, all, []any{client, millis(reservationTime)}}
}

// inspectCall looks at one lock key.
func (p *protocol) inspectCall(res *resource) call {
	return call{p.inspect, res.keys[:1], res.slots[:1]}
}

// What ready.lua is asked, beside the question itself.
const (
	wordLook    = "look"
	wordDurable = "durable"
	wordEnroll  = "enroll"
	wordNew     = "new"
	wordChange  = "change"
)

var readyKeys = []any{markerKey, quarantineKey, configKey, fenceKey}

// readyCall asks a node whether it may grant, or says that it may. fleetMicros is the time by the other nodes' clocks;
// 0: there are none. s is ready.lua, by the name of the operation.
func (c *Client) readyCall(s *script, word string, fleetMicros int64) call {
	cfg := &c.cfg
	apart := cfg.NodeTimeout + cfg.MaxClockSkew // the clocks of others are not known better than a round takes
	return call{s, readyKeys, []any{c.agreement.digest, c.agreement.text, millis(cfg.MaxTTL),
		millis(apart), word, fleetMicros, apart.Microseconds(), flag(!cfg.NoFence)}}
}

// parse reads a script's reply; the heads of scripts/*.lua say what they are.
func (s *script) parse(keys int, reply any, err error) answer {
	if err != nil {
		return answer{vote: unknown, err: err}
	}
	switch reply := reply.(type) {
	case int64:
		if !s.cleansUp {
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
	return answer{vote: unknown, err: fmt.Errorf("the %s script replied %v, which is none of its replies", s.name, reply)}
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
	case "held", "key":
		left, errLeft := redis.Int64(at(reply, 2))
		owner, errOwner := redis.String(at(reply, 3))
		highest, errHighest := redis.Uint64(at(reply, 4))
		if errLeft != nil || errOwner != nil || errHighest != nil {
			return answer{}, false
		}
		*a.denial = denial{reason: held, left: time.Duration(left) * time.Millisecond, owner: owner, highest: highest}
		if kind == "key" { // nobody asked for it
			a.vote, a.denial, a.found = granted, nil, &finding{denial: *a.denial, taken: left != noKey}
		}
	case "ballot":
		highest, err := redis.Uint64(at(reply, 2))
		if err != nil {
			return answer{}, false
		}
		*a.denial = denial{reason: stale, highest: highest}
	case "ready":
		a.vote, a.denial = granted, nil
	case "differs":
		text, err := redis.String(at(reply, 2))
		if err != nil {
			return answer{}, false
		}
		return answer{vote: denied, micros: micros, err: otherConfig(text)}, true
	case "used":
		return answer{vote: denied, micros: micros, err: errUsed}, true
	case "unjudged":
		return answer{vote: unknown, micros: micros, err: errUnjudged}, true
	case "quarantine":
		left, err := redis.Int64(at(reply, 2))
		if err != nil {
			return answer{}, false
		}
		*a.denial = denial{reason: inQuarantine, left: time.Duration(left) * time.Millisecond}
	case "unready": // the node's own goroutine knows why, and says so in its place
		return answer{vote: unknown, micros: micros, err: errUnready}, true
	case "missing":
		a.denial.reason = missing
	default:
		return answer{}, false
	}
	return a, true
}

// otherConfig is the configuration of a node, as it is written there, by which ready.lua refuses ours.
type otherConfig string

func (o otherConfig) Error() string { return "the node's configuration is another: " + string(o) }

// noKey is what PTTL says where there is no key.
const noKey = -2

func at(reply []any, i int) (any, error) {
	if i >= len(reply) {
		return nil, redis.ErrNil
	}
	return reply[i], nil
}
