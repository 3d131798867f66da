package traffic

import (
	"context"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/chaos/history"
)

const (
	lookEvery = 3 * time.Millisecond
	// lookPatience is long: an answer that is late still tells more than none.
	lookPatience = 5 * time.Second
)

// Observe looks whose lock it is, on each node, until ctx ends, and records when that changes. dial opens a
// connection to whoever is at the node's address now, past every cut. It returns when it has ended.
func Observe(ctx context.Context, l *Log, nodes, names []string, dial func(ctx context.Context, node string) (redis.Conn, error)) {
	var wg sync.WaitGroup
	for _, node := range nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			o := &observer{log: l, node: node, names: names, owners: make([]string, len(names))}
			for ctx.Err() == nil {
				if conn, err := dial(ctx, node); err == nil {
					o.watch(ctx, conn)
					conn.Close()
				}
				nap(ctx, lookEvery)
			}
		}()
	}
	wg.Wait()
}

type observer struct {
	log    *Log
	node   string
	names  []string
	owners []string // last seen
}

// watch looks until the connection fails: the server is down, paused or replaced.
func (o *observer) watch(ctx context.Context, conn redis.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })() // a paused node must not hold up the end
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
			owner, err := redis.String(conn.Receive())
			if err != nil {
				return
			}
			if owner != o.owners[i] {
				o.owners[i] = owner
				o.log.Add(history.Event{Kind: history.Owner, Node: o.node, Resource: name, Token: owner})
			}
		}
		nap(ctx, lookEvery)
	}
}

// ownerScript returns the owner, "" if there is none: the value of a string, or the only field of a hash, as
// re-entrant locks have it.
const ownerScript = `local kind = redis.call('type', KEYS[1])['ok']
if kind == 'string' then return redis.call('get', KEYS[1]) end
if kind == 'hash' then return redis.call('hkeys', KEYS[1])[1] end
return ''`

// ObserverPatience is how long dial may take, and each command on its connection.
const ObserverPatience = lookPatience
