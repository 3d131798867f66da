package redlock

import (
	"github.com/gomodule/redigo/redis"
)

// What fair.lua is given and what it replies beside the replies of acquire.lua (O1). The head of scripts/fair.lua
// describes it.

// A place is that of one waiter in the queues of a fair lock. A try has one without a ticket: it enters no queue.
type place struct {
	waiter string
	ticket int64 // µs; 0: none
	life   any   // for how many milliseconds it lasts after each time that it asks; a script argument
	keys   []any // of fair.lua
}

// fairPrefix begins the name of a waiter in the queues. The id of its client follows, and its number there.
const fairPrefix = "fair:"

// fairKeys are KEYS of fair.lua.
func fairKeys(res *resource) []any {
	keys := make([]any, 0, 2+5*len(res.keys))
	keys = append(keys, markerArg, fenceArg)
	for _, key := range res.keys {
		name := key.(string)
		keys = append(keys, key, fairTicketPrefix+name, fairUntilPrefix+name, waitPrefix+name, intentPrefix+name)
	}
	return keys
}

// fairCall asks for a fair lock. The ticket is among the arguments that differ from node to node.
func (p *protocol) fairCall(res *resource, at *place, token, ttlMillis any, ballot uint64) call {
	return call{p.fair, at.keys, withFence(res, ballot, at.waiter, token, ttlMillis, at.life)}
}

// leavePlaceCall takes the waiter out of the queues of these keys of a fair lock. A key that is free goes to the next
// waiter, with a reservation of that length if that one's lock is not fair.
func (p *protocol) leavePlaceCall(locks []any, waiter string, reserveMillis int64) call {
	keys := make([]any, 0, 6*len(locks))
	keys = append(keys, locks...)
	for _, prefix := range []string{waitPrefix, sharedPrefix, intentPrefix, fairTicketPrefix, fairUntilPrefix} {
		for _, key := range locks {
			keys = append(keys, prefix+key.(string))
		}
	}
	return call{p.leave, keys, []any{waiter, reserveMillis}}
}

// maxAhead is how many waiters ahead a node is believed. Pauses are multiplied by it, and must not overflow.
const maxAhead = 1e6

// parseQueue reads what a refusal of fair.lua says about the queues.
func (d *denial) parseQueue(kind string, reply []any) bool {
	if kind == "behind" {
		d.reason = behind
	}
	var errTicket, errAhead error
	d.ticket, errTicket = redis.Int64(at(reply, 5))
	d.ahead, errAhead = redis.Int(at(reply, 6))
	d.ahead = min(d.ahead, maxAhead)
	return errTicket == nil && errAhead == nil
}
