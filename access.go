package redlock

import (
	"context"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/access"
)

// leaderPrefix begins the key that says who leads an election, and the channel on which observers hear of a change. The
// lock's key follows. Package election uses both.
const leaderPrefix = "redlock:leader:"

func init() {
	access.Of = func(client any) access.Client { return accessor{client.(*Client)} }
	access.LookOnly = func(config any) { config.(*Config).onlyLook = true }
}

// An accessor is what package election uses of a client.
type accessor struct{ c *Client }

func (a accessor) Keys(name string) (lock, leader string, err error) {
	s := a.c.Mutex(name).spec
	if s.err != nil {
		return "", "", s.err
	}
	if err := a.c.cfg.checkGroup(s.res.names); err != nil {
		return "", "", err
	}
	lock = s.res.keys[0].(string)
	return lock, leaderPrefix + lock, nil
}

// Channel names the database, unless it is the first: a server's channels belong to all its databases, and the same lock in
// another one is another lock. No lock key begins with leaderPrefix, so no other lock has this channel.
func (a accessor) Channel(node int, lock string) string {
	if database := a.c.nodes[node].endpoint.database; database != 0 {
		return leaderPrefix + leaderPrefix + strconv.Itoa(database) + ":" + lock
	}
	return leaderPrefix + lock
}

func (a accessor) Nodes() int                 { return len(a.c.nodes) }
func (a accessor) TTL() time.Duration         { return a.c.cfg.TTL }
func (a accessor) NodeTimeout() time.Duration { return a.c.cfg.NodeTimeout }

func (a accessor) Believed() uint64 {
	if _, clocks := a.c.medianClock(); clocks < a.c.need { // that of one server alone may be anything (F1)
		return 0
	}
	return a.c.ballotLimit()
}

func (a accessor) Go(ctx context.Context, run func(context.Context)) bool {
	if !a.c.begin() {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends no later than run
		select {
		case <-a.c.ending:
			cancel()
		case <-ctx.Done():
		}
		close(ended)
	}()
	go func() {
		defer a.c.finish()
		defer func() { cancel(); <-ended }()
		run(ctx)
	}()
	return true
}

func (a accessor) Get(node int, key string, done func(value string, err error)) {
	a.c.nodes[node].command("GET", []any{key}, func(reply any, err error) { done(redis.String(reply, err)) })
}

func (a accessor) Load(node int, script *access.Script) {
	a.c.nodes[node].command("SCRIPT", []any{"LOAD", script.Source}, ignoreReply)
}

func ignoreReply(any, error) {}

func (a accessor) Run(node int, script *access.Script, keys, args []string) {
	n := a.c.nodes[node]
	all := []any{script.Hash, len(keys)}
	for _, arg := range append(keys[:len(keys):len(keys)], args...) {
		all = append(all, arg)
	}
	n.command("EVALSHA", all, func(_ any, err error) {
		if isRefusal(err) && isForgotten(err) {
			a.Load(node, script)
			n.command("EVALSHA", all, ignoreReply)
		}
	})
}

// command sends one command to the node, in order with all others. done is called once: with the reply, or with the
// reason why there is none.
func (n *node) command(name string, args []any, done func(reply any, err error)) {
	c := &command{name: name, args: args, done: func(_ *node, _ request, reply any, err error) { done(reply, err) }}
	n.mu.Lock()
	var err error
	switch {
	case !n.up:
		err = n.why
	case len(n.queue)+n.flight.len() >= maxOutstanding:
		err = errOverloaded
	default:
		n.queue = append(n.queue, request{command: c})
	}
	n.mu.Unlock()
	if err != nil {
		done(nil, err)
		return
	}
	n.wakeUp()
}

const leaderRemedy = "allow the user SUBSCRIBE on redlock:leader:* (ACL: &redlock:leader:* +subscribe), " +
	"and the client one connection more"

func (a accessor) Keep(ctx context.Context, node int, serve func(redis.Conn) (worked bool, err error)) {
	n := a.c.nodes[node]
	again := reconnect{settings: a.c.settings}
	told := false
	for ctx.Err() == nil {
		served, began := false, a.c.cfg.Clock.Now()
		worked, err := a.once(ctx, n, func(conn redis.Conn) (bool, error) {
			served = true
			return serve(conn)
		})
		longest := backoffMax
		if worked {
			again.lasted(a.c.cfg.Clock.Now().Sub(began))
			told = false
		} else if isRefusal(err) {
			if served { // an operator has to act first; a login is tried as often as that of the node's own connection
				longest = refusedMax
			}
			// Not if the server refuses the node's own connection too: the log has that.
			if _, up, away := n.state(); !told && (up || !isRefusal(away)) {
				told = true
				a.c.cfg.Logger.Warn("redlock: observers of an election poll a node", "node", n.endpoint.name,
					"error", withChannelRemedy(err, leaderRemedy))
			}
		}
		again.pause(ctx, nil, longest)
	}
}

// once calls serve with one connection.
func (a accessor) once(ctx context.Context, n *node, serve func(redis.Conn) (bool, error)) (worked bool, err error) {
	handshake := func(conn redis.Conn, login login) error { return login.start(conn) }
	conn, _, err := n.endpoint.open(ctx, a.c.stallTimeout(), handshake)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return serve(conn)
}
