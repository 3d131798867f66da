package traffic

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/internal/sleep"
)

const (
	lookEvery = 3 * time.Millisecond
	// lookPatience is long, because a late answer is better than none.
	lookPatience = 5 * time.Second
)

// Observe watches on each node which token is in the locks' keys, and records every change, until ctx ends. dial opens
// a connection to the server that is now at the node's address; it bypasses every cut.
func Observe(ctx context.Context, l *Log, nodes, names []string, dial func(ctx context.Context, node string) (redis.Conn, error)) {
	var wg sync.WaitGroup
	for _, node := range nodes {
		wg.Go(func() {
			o := &observer{log: l, node: node, names: names, owners: make([][]string, len(names))}
			for ctx.Err() == nil {
				if conn, err := dial(ctx, node); err == nil {
					o.watch(ctx, conn)
					conn.Close()
				}
				_ = sleep.For(ctx, lookEvery)
			}
		})
	}
	wg.Wait()
}

type observer struct {
	log    *Log
	node   string
	names  []string
	owners [][]string // as last seen, sorted
}

// watch polls until the connection fails, because the server is down, paused or replaced.
func (o *observer) watch(ctx context.Context, conn redis.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })() // a paused node must not delay the end
	for ctx.Err() == nil {
		for _, name := range o.names {
			if conn.Send("EVAL", ownerScript, 1, name) != nil {
				return
			}
		}
		if conn.Flush() != nil {
			return
		}
		for i, name := range o.names {
			owners, err := redis.Strings(conn.Receive())
			if err != nil {
				return
			}
			slices.Sort(owners)
			owners = slices.Compact(owners)
			if !slices.Equal(owners, o.owners[i]) {
				o.owners[i] = owners
				o.log.Add(seen(o.node, name, owners))
			}
		}
		_ = sleep.For(ctx, lookEvery)
	}
}

// seen is the event of a change.
func seen(node, name string, owners []string) history.Event {
	e := history.Event{Kind: history.Owner, Node: node, Resource: name}
	switch len(owners) {
	case 0:
	case 1:
		e.Token = owners[0]
	default:
		e.Owners = owners
	}
	return e
}

// ownerScript returns the tokens of the owners: the value of a string, the only field of a hash, which reentrant locks
// use, or the members of a sorted set, which locks use that several may hold. A member ends with the token. Its score is
// when it ends, in microseconds of the server's clock: the entry of a dead owner stays in the set until somebody looks.
const ownerScript = `local kind = redis.call('type', KEYS[1])['ok']
if kind == 'string' then return {redis.call('get', KEYS[1])} end
if kind == 'hash' then return {redis.call('hkeys', KEYS[1])[1]} end
if kind ~= 'zset' then return {} end
local time, tokens = redis.call('time'), {}
local now = string.format('%.0f', time[1] * 1000000 + time[2])
for _, member in ipairs(redis.call('zrangebyscore', KEYS[1], now, '+inf')) do
	tokens[#tokens + 1] = string.match(member, '%S+$')
end
return tokens`

// ObserverPatience is how long dial and each command on its connection may take.
const ObserverPatience = lookPatience
