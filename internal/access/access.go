// Package access gives package election what it needs of a client: commands and connections to the nodes. Other programs
// must not have these, because a wrong command to a node can take a lock from its holder. It gives the command redlock
// clients that only look.
package access

import (
	"context"
	"crypto/sha1" // #nosec: the name Redis gives a script, not a secret
	"encoding/hex"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Of returns the access to the nodes of a *redlock.Client. Package redlock sets it when it is initialized.
var Of func(client any) Client

// LookOnly makes a client of this *redlock.Config only look: it never begins or ends a quarantine, which decides the
// configuration of nodes that hold none. Commands for operators use it while they do not know that configuration. Package
// redlock sets it when it is initialized.
var LookOnly func(config any)

// A Client is a *redlock.Client. All methods may be called concurrently, also after the client was closed.
type Client interface {
	// Keys returns the key of the lock with this name, and the key of its leader. The error is redlock.ErrInvalid.
	Keys(name string) (lock, leader string, err error)
	// Channel returns the channel of the leader of the lock with this key, on the node.
	Channel(node int, lock string) string
	// Nodes is how many nodes there are. They are numbered from 0.
	Nodes() int
	TTL() time.Duration         // of Config
	NodeTimeout() time.Duration // of Config
	// Believed is the largest fencing token that one node is believed; 0: none, while the clocks of too few are known.
	Believed() uint64

	// Go calls run on a goroutine that Close waits for. run's context ends when ctx ends or Close begins. Go returns
	// false, and does not call run, if the client is closed.
	Go(ctx context.Context, run func(context.Context)) bool

	// Get reads a key. done is called once, perhaps before Get returns, and must not block. A missing key is
	// redis.ErrNil.
	Get(node int, key string, done func(value string, err error))
	// Load makes a script known to the node, so that Run need not do so.
	Load(node int, script *Script)
	// Run sends a script to the node, on the connection on which the lock commands go, and behind those that were sent
	// before. Nobody learns whether the node executes it.
	Run(node int, script *Script, keys, args []string)
	// Keep calls serve with a connection to the node that is logged in, and again with another one when serve has
	// returned, until ctx ends. This closes the connection. serve says whether the connection was of use, and why it
	// has ended.
	Keep(ctx context.Context, node int, serve func(redis.Conn) (worked bool, err error))
}

// A Script is a Lua script.
type Script struct{ Source, Hash string }

// NewScript makes a Script.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}
