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
			o := &observer{log: l, node: node, names: names, owners: make([][]string, len(names)), asked: make([]int64, len(names))}
			for ctx.Err() == nil {
				if conn, err := dial(ctx, node); err == nil {
					o.watch(ctx, conn)
					conn.Close()
				}
				_ = sleep.For(ctx, lookEvery)
			}
			o.end()
		})
	}
	wg.Wait()
}

type observer struct {
	log    *Log
	node   string
	names  []string
	owners [][]string // as last seen, sorted
	asked  []int64    // when it was asked what the node said last
}

// watch polls until the connection fails, because the server is down, paused or replaced.
func (o *observer) watch(ctx context.Context, conn redis.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })() // a paused node must not delay the end
	for ctx.Err() == nil {
		asked := o.log.at()
		for _, name := range o.names {
			if conn.Send("EVAL", ownerScript, 1, name) != nil {
				return
			}
		}
		if conn.Flush() != nil {
			return
		}
		for i := range o.names {
			owners, err := redis.Strings(conn.Receive())
			if err != nil {
				return
			}
			slices.Sort(owners)
			owners = slices.Compact(owners)
			if !slices.Equal(owners, o.owners[i]) {
				o.changed(i, owners)
			}
			o.asked[i] = asked
		}
		_ = sleep.For(ctx, lookEvery)
	}
}

// changed records that these are the owners of a lock now. The former ones were seen until the observer last asked: it
// may notice a change late, because it gets no processor time, or because the node does not answer.
func (o *observer) changed(lock int, owners []string) {
	e := history.Event{Kind: history.Owner, Node: o.node, Resource: o.names[lock], Since: o.asked[lock]}
	switch len(owners) {
	case 0:
	case 1:
		e.Token = owners[0]
	default:
		e.Owners = owners
	}
	o.owners[lock] = owners
	o.log.Add(e)
}

// end records until when the last owners were seen.
func (o *observer) end() {
	for i, owners := range o.owners {
		if len(owners) > 0 {
			o.changed(i, owners)
		}
	}
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
