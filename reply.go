package redlock

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

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
