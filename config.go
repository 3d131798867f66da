package redlock

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Config describes the nodes, and how far they and this process are to be trusted. Only Nodes is
// required.
//
// All clients of the same nodes must agree on Nodes (how many), Quorum, MaxTTL, MaxClockSkew, ClockBand, Prefix,
// Durable and NoFence. The nodes hold what the first client had; a client that differs is refused, with a
// [*ConfigError]. [AgreedConfig] asks the nodes, and [Client.Enroll] with [ChangeConfig] changes what they hold.
type Config struct {
	// Nodes are independent Redis masters: three, five or seven of them, none a replica of another.
	Nodes []Node
	// TTL is the length of a lease, renewed at a third of it while it is held. Default 10s, or MaxTTL where that
	// is less; at least 10ms.
	TTL time.Duration
	// MaxTTL is the longest lease that any client of these nodes takes. Default 30s.
	MaxTTL time.Duration
	// NodeTimeout is one node's time to answer one round. Below TTL/2. Default 250ms, or TTL/4 where that
	// is less.
	NodeTimeout time.Duration
	// MinValidity is how much time an acquired lease has left at the least. Default 0: any.
	MinValidity time.Duration
	// Quorum is how many nodes must grant. Default 0: a majority. Fewer would be unsafe, and is an error.
	Quorum int
	// Drift bounds how far this process's clock and a server's may run apart, as a fraction of the TTL;
	// 2ms are added. Default 0.01.
	Drift float64
	// ClockBand guards against a server whose clock steps: a lease gives up twice this of its validity, and
	// a quorum counts only servers whose clocks lie within half of this of each other. Normal differences
	// between their clocks must stay below that half; keep NTP running. For a lock whose TTL is less than twenty times
	// this, it is a twentieth of the TTL. Default 100ms; negative switches the check off.
	ClockBand time.Duration
	// MaxClockSkew is how far a server's clock may move against the other servers' while it sits out a
	// quarantine; if it moves further, the quarantine begins again. Default 500ms.
	MaxClockSkew time.Duration
	// Prefix is put before every lock key. Default "": the key is the name, as in other Redlock clients.
	Prefix string
	// Durable says that every node persists before it answers (appendfsync always), so that a restart
	// forgets nothing.
	Durable bool
	// NoFence leaves fencing tokens out: plain Redlock. [Lease.Fence] is then 0.
	NoFence bool
	// Clock is this process's clock. Default nil: [SystemClock].
	Clock Clock
	// Hooks are told what happens.
	Hooks Hooks
	// Logger is told what an operator may want to know. Default nil: silent.
	Logger *slog.Logger

	protocol *protocol // nil: standard. Tests alone set it
	onlyLook bool      // never begin or end a quarantine

	_ struct{}
}

// A Node is one independent Redis master.
type Node struct {
	// Name stands for the node in errors, hooks and reports. Default: host:port, or the socket's path.
	Name string
	// URL is redis://user:password@host:port/db, rediss:// for TLS, or unix:///path?db=0. A bare host:port
	// is accepted too.
	URL string
	// TLS is used with rediss://. Default nil: the host's root certificates.
	TLS *tls.Config
	// Dial opens a connection instead of URL: logged in, its database selected, without a read timeout.
	// Give it a write timeout. Name is then required.
	Dial func(context.Context) (redis.Conn, error)
}

// Nodes makes a list of nodes from their URLs; "host:port" is accepted too.
func Nodes(urls ...string) []Node {
	nodes := make([]Node, len(urls))
	for i, u := range urls {
		nodes[i].URL = u
	}
	return nodes
}

const (
	defaultTTL          = 10 * time.Second
	defaultMaxTTL       = 30 * time.Second
	defaultNodeTimeout  = 250 * time.Millisecond
	defaultDrift        = 0.01
	defaultClockBand    = 100 * time.Millisecond
	defaultMaxClockSkew = 500 * time.Millisecond
	minTTL              = 10 * time.Millisecond
	maxNodes            = 64
	maxNameBytes        = 1024
)

// validate returns the configuration with its defaults filled in, and the address of each node.
func (c Config) validate() (Config, []endpoint, error) {
	if c.MaxTTL == 0 {
		c.MaxTTL = defaultMaxTTL
	}
	if c.TTL == 0 {
		c.TTL = min(defaultTTL, c.MaxTTL)
	}
	if c.NodeTimeout == 0 {
		c.NodeTimeout = min(defaultNodeTimeout, c.TTL/4)
	}
	if c.Drift == 0 {
		c.Drift = defaultDrift
	}
	if c.ClockBand == 0 {
		c.ClockBand = defaultClockBand
	}
	if c.MaxClockSkew == 0 {
		c.MaxClockSkew = defaultMaxClockSkew
	}
	if c.Quorum == 0 {
		c.Quorum = majority(len(c.Nodes))
	}
	if c.Clock == nil {
		c.Clock = SystemClock()
	}

	switch {
	case len(c.Nodes) == 0:
		return c, nil, invalid("Nodes", "there are none; give the URLs of three, five or seven independent masters")
	case len(c.Nodes) > maxNodes:
		return c, nil, invalid("Nodes", "%d are more than the %d allowed", len(c.Nodes), maxNodes)
	case c.Quorum < majority(len(c.Nodes)):
		return c, nil, invalid("Quorum", "%d of %d nodes is below a majority, so two clients could both have one; use 0 or at least %d",
			c.Quorum, len(c.Nodes), majority(len(c.Nodes)))
	case c.Quorum > len(c.Nodes):
		return c, nil, invalid("Quorum", "%d is more than there are nodes (%d)", c.Quorum, len(c.Nodes))
	case c.MaxTTL < minTTL:
		return c, nil, invalid("MaxTTL", "%v is below %v", c.MaxTTL, minTTL)
	case math.IsNaN(c.Drift) || c.Drift < 0 || c.Drift >= 1:
		return c, nil, invalid("Drift", "%v is not a fraction from 0 to 1; 0.01 is one percent", c.Drift)
	case c.MaxClockSkew < 0:
		return c, nil, invalid("MaxClockSkew", "%v is negative", c.MaxClockSkew)
	case c.MinValidity < 0:
		return c, nil, invalid("MinValidity", "%v is negative", c.MinValidity)
	case c.NodeTimeout < 0:
		return c, nil, invalid("NodeTimeout", "%v is negative", c.NodeTimeout)
	}
	if err := c.checkTTL("TTL", c.TTL); err != nil {
		return c, nil, err
	}
	if c.NodeTimeout >= c.TTL/2 {
		return c, nil, invalid("NodeTimeout", "%v is not below half the TTL (%v); a round must leave time to use the lock", c.NodeTimeout, c.TTL)
	}
	endpoints, err := resolve(c.Nodes)
	return c, endpoints, err
}

// checkTTL holds for the configured TTL and for one that a lock sets itself.
func (c *Config) checkTTL(field string, ttl time.Duration) error {
	switch {
	case ttl < minTTL:
		return invalid(field, "%v is below %v, less than a round may take", ttl, minTTL)
	case ttl > c.MaxTTL:
		return invalid(field, "%v is above MaxTTL (%v); raise MaxTTL on every client of these nodes", ttl, c.MaxTTL)
	case ttl-driftOf(ttl, c.Drift)-bandCost(c.band(ttl), 0) <= c.MinValidity:
		return invalid(field, "%v less the clock drift (%v) and twice the ClockBand (%v) leaves no more than MinValidity (%v)",
			ttl, driftOf(ttl, c.Drift), c.band(ttl), c.MinValidity)
	}
	return nil
}

// band is the clock band of a lock with this ttl. No other setting of this client has a part in it: it is the same
// in all clients.
func (c *Config) band(ttl time.Duration) time.Duration { return min(c.ClockBand, ttl/20) }

// nodeTimeout is the time of one round of a lock with this ttl.
func (c *Config) nodeTimeout(ttl time.Duration) time.Duration { return min(c.NodeTimeout, ttl/4) }

// The keys that a node has beside the locks; see docs/protocol.md.
const (
	fenceKey      = "redlock:fence"
	markerKey     = "redlock:node"
	quarantineKey = "redlock:quarantine"
	configKey     = "redlock:config"
	waitPrefix    = "redlock:wait:" // those who wait for a key, in the order in which they came
)

// checkNames holds for the names of one lock.
func (c *Config) checkNames(names []string) error {
	if len(names) > maxNames {
		return invalid("name", "%d names are more than the %d that one lock may have; lock a name that stands for all of them", len(names), maxNames)
	}
	var seen map[string]bool // the names before
	if len(names) > 1 {
		seen = make(map[string]bool, len(names))
	}
	for i, name := range names {
		key := c.Prefix + name
		switch {
		case name == "":
			return invalid("name", "it is empty")
		case len(name) > maxNameBytes:
			return invalid("name", "%.20q… has %d bytes, more than the %d allowed; use a hash of it", name, len(name), maxNameBytes)
		case isReservedKey(key):
			return invalid("name", "the key %q is one that this library keeps for itself; use another name or Prefix", key)
		}
		if seen[name] {
			return invalid("name", "%q is given twice", name)
		}
		if i < len(names)-1 {
			seen[name] = true
		}
	}
	return nil
}

// isReservedKey reports whether the key is one of those that a node keeps beside the locks.
func isReservedKey(key string) bool {
	switch key {
	case fenceKey, markerKey, quarantineKey, configKey:
		return true
	}
	return strings.HasPrefix(key, waitPrefix) || strings.HasPrefix(key, "redlock:fair:") || strings.HasPrefix(key, "redlock:rw:")
}
