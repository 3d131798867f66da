package redlock

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Config describes the nodes, and how far they and this process can be trusted. Only Nodes is required. A zero field
// has its default.
//
// All clients of the same nodes must agree on Nodes (how many), Quorum, MaxTTL, MaxClockSkew, ClockBand, Prefix,
// Durable and NoFence, and on all groups of a [Sharded]. The nodes hold what the first client had. They refuse a client that differs, with a
// [*ConfigError]. [AgreedConfig] asks the nodes, and [Client.Enroll] with [ChangeConfig] changes what they hold.
type Config struct {
	// Nodes are independent Redis masters: three, five or seven, none a replica of another. At most 64.
	Nodes []Node
	// Credentials, if not nil, is what [Node.Credentials] is, for all nodes that have no login of their own: no
	// Credentials, no user name or password in the URL, and no Dial. It is called for several nodes at once.
	Credentials func(context.Context) (user, password string, err error)
	// TTL is the length of a lease. A lease is renewed at a third of it. Default 10s, or MaxTTL if that is less. At
	// least 10ms.
	TTL time.Duration
	// MaxTTL is the longest lease that any client of these nodes takes, up to a year. Default 30s.
	MaxTTL time.Duration
	// NodeTimeout is how long one round waits for a node, or a quarter of the lock's TTL ([Lock.WithTTL]) if that is less.
	// Then it looks once more for answers, a sixteenth of that time later; or, if this process stood still and so learned
	// late that the time is over, as much later as it was late. At least 1ms, and below TTL/2. Default 250ms, or TTL/4 if
	// that is less.
	NodeTimeout time.Duration
	// MinValidity is the least useful lease: a round that leaves no more validity than this does not acquire the lock.
	// Default 0: any time above 0 is enough.
	MinValidity time.Duration
	// Quorum is how many nodes must grant. Default 0: a majority. Fewer would be unsafe and are an error.
	Quorum int
	// Drift bounds how far the clocks of this process and of a server may run apart while a lease lasts, as a fraction
	// of the TTL. 2ms are added. From 0 to below 0.5, so that a lease lives until it is renewed. Default 0.01, which is one
	// percent.
	Drift float64
	// ClockBand guards against a server whose clock steps. A lease gives up twice the band of its validity. A quorum
	// counts only servers whose clocks lie within half the band of each other. Normal differences between their clocks
	// must stay below that half; keep NTP running. If a lock's TTL is less than twenty times the band, its band is a
	// twentieth of its TTL. A quarantine is longer by the band. Default 100ms; up to a year. A negative value switches the
	// check off.
	ClockBand time.Duration
	// MaxClockSkew is how far a server's clock may move against the other servers' clocks during a quarantine. If it
	// moves further, the quarantine begins again. Default 500ms; up to a year, and not negative.
	MaxClockSkew time.Duration
	// Prefix is put before every lock key. Default "": the key is the name, as in other Redlock clients.
	Prefix string
	// Durable says that every node persists before it answers (appendfsync always), so that a restart forgets nothing.
	// A restarted node may then grant at once, without a quarantine. A node that does not persist so has no vote.
	Durable bool
	// Owner says who this process is, to others that find a lock held: in [RoundError.Holder], in errors, in
	// [Client.Inspect]. Up to 256 bytes. It is stored on the nodes, with each lock. Default "": the host name and the
	// process id, "web-3/4711". [Lock.WithOwner] adds to it.
	Owner string
	// NoFence switches fencing tokens off: plain Redlock. [Lease.Fence] is then 0.
	NoFence bool
	// Clock is this process's clock. Default nil: [SystemClock].
	Clock Clock
	// Hooks are called when something happens. Default: none.
	Hooks Hooks
	// Logger gets what an operator may want to know. Default nil: no log.
	Logger *slog.Logger

	protocol *protocol // nil: standard. Only tests set it
	onlyLook bool      // the client never begins or ends a quarantine
	groups   []string  // the ids of the groups of a Sharded, this client's first; nil: these nodes are all there are

	groupNews *groupNews // what the nodes of all groups say of them; nil: the client is of New

	_ struct{}
}

// A Node is one independent Redis master.
type Node struct {
	// Name is what errors, hooks and reports call the node. Default: host:port, or the socket's path.
	Name string
	// URL is redis://user:password@host:port/db, rediss:// for TLS, or unix:///path?db=0. A bare host:port is accepted
	// too.
	URL string
	// TLS is used with rediss://, and must be nil otherwise. Default nil: the host's root certificates.
	TLS *tls.Config
	// Credentials, if not nil, returns the user name and password for each new connection, for passwords and tokens that
	// rotate. An empty user is the server's default user. If both are empty, the connection does not log in. URL has then
	// no user name or password, and Dial is nil.
	//
	// It is called on several goroutines, whenever a connection has opened: once or twice at the beginning, and again
	// after each loss of a connection, at first some milliseconds apart, then about a second. So it should keep a
	// token until the token is about to expire. ctx ends when the connection must be ready, after four NodeTimeouts
	// or 1s, whichever is longer. If it ends first, or if there is an error, the node is not connected, and the next
	// try follows. [NodeStatus] and [RoundError] then have the error's text, so do not put a secret into it.
	//
	// A connection that stays open keeps its login. A server may end it when the login expires (ElastiCache ends a
	// connection by IAM after 12 hours; Azure ends one when its token expires). Then the client connects anew.
	Credentials func(context.Context) (user, password string, err error)
	// Dial, if not nil, opens the connections instead of URL. They are those of the package
	// github.com/gomodule/redigo/redis. A connection must be logged in, have its database
	// selected, and have a write timeout but no read timeout: an idle connection would end by it ([NodeStatus.Warnings]
	// tells). Name is then required.
	Dial func(context.Context) (redis.Conn, error)
}

// Nodes makes the list of nodes from their URLs; "host:port" is accepted too.
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
	minNodeTimeout      = time.Millisecond
	// maxTime bounds MaxTTL, MaxClockSkew and ClockBand. A quarantine is the sum of them. If that overflowed, it would be
	// over at once, and a node that forgot its leases would grant.
	maxTime      = 365 * 24 * time.Hour
	maxNodes     = 64
	maxNameBytes = 1024
)

// validate fills in the defaults, checks the result, and returns it with the address of each node.
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
	if c.Owner == "" {
		c.Owner = thisProcess()
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
	case c.MaxTTL > maxTime:
		return c, nil, invalid("MaxTTL", "%v is above %v; a quarantine would last that long", c.MaxTTL, maxTime)
	case math.IsNaN(c.Drift) || c.Drift < 0 || c.Drift >= 0.5:
		return c, nil, invalid("Drift", "%v is not a fraction from 0 to below 0.5; 0.01 is one percent", c.Drift)
	case c.MaxClockSkew < 0:
		return c, nil, invalid("MaxClockSkew", "%v is negative", c.MaxClockSkew)
	case c.MaxClockSkew > maxTime:
		return c, nil, invalid("MaxClockSkew", "%v is above %v; a quarantine would last that long", c.MaxClockSkew, maxTime)
	case c.ClockBand > maxTime:
		return c, nil, invalid("ClockBand", "%v is above %v; a quarantine would last that long", c.ClockBand, maxTime)
	case c.MinValidity < 0:
		return c, nil, invalid("MinValidity", "%v is negative", c.MinValidity)
	case c.NodeTimeout < 0:
		return c, nil, invalid("NodeTimeout", "%v is negative", c.NodeTimeout)
	}
	if err := cmp.Or(checkUnit("NodeTimeout", c.NodeTimeout), checkUnit("MinValidity", c.MinValidity),
		checkUnit("ClockBand", c.ClockBand), checkUnit("MaxClockSkew", c.MaxClockSkew)); err != nil {
		return c, nil, err
	}
	if err := c.checkTTL("TTL", c.TTL); err != nil {
		return c, nil, err
	}
	if err := checkOwner("Owner", c.Owner); err != nil {
		return c, nil, err
	}
	if c.NodeTimeout >= c.TTL/2 {
		return c, nil, invalid("NodeTimeout", "%v is not below half the TTL (%v); a round must leave time to use the lock", c.NodeTimeout, c.TTL)
	}
	if c.NodeTimeout < minNodeTimeout {
		return c, nil, invalid("NodeTimeout", "%v is below %v, in which hardly any node answers", c.NodeTimeout, minNodeTimeout)
	}
	endpoints, err := resolve(c.Nodes, c.Credentials)
	return c, endpoints, err
}

// checkUnit refuses a time whose unit was forgotten: 250 is 250ns.
func checkUnit(field string, d time.Duration) error {
	if d > 0 && d < time.Microsecond {
		return invalid(field, "%v is too short to be meant; give it a unit: %d*time.Millisecond, for example", d, d.Nanoseconds())
	}
	return nil
}

// raiseMaxTTL is how a longer lease becomes possible. Every client that differs from the nodes is refused (Q3).
const raiseMaxTTL = "on every client of these nodes and, while none holds a lock, on the nodes: redlock enroll --change-config --max-ttl %v"

// checkTTL checks the configured TTL, or the TTL that a lock sets itself. field names it in the error.
func (c *Config) checkTTL(field string, ttl time.Duration) error {
	switch {
	case ttl < minTTL:
		return invalid(field, "%v is below %v, less than a round may take", ttl, minTTL)
	case ttl > c.MaxTTL:
		return invalid(field, "%v is above MaxTTL (%v); raise MaxTTL "+raiseMaxTTL, ttl, c.MaxTTL, ttl)
	case ttl-driftOf(ttl, c.Drift)-bandCost(c.band(ttl), 0) <= c.MinValidity:
		return invalid(field, "%v less the clock drift (%v) and twice the ClockBand (%v) leaves no more than MinValidity (%v)",
			ttl, driftOf(ttl, c.Drift), c.band(ttl), c.MinValidity)
	}
	return nil
}

// band is the clock band of a lock with this ttl (C3). It depends on nothing else that may differ between clients, so
// all clients compute the same.
func (c *Config) band(ttl time.Duration) time.Duration { return min(c.ClockBand, ttl/20) }

// nodeTimeout is the time of one round of a lock with this ttl (A3).
func (c *Config) nodeTimeout(ttl time.Duration) time.Duration { return min(c.NodeTimeout, ttl/4) }

// The keys that a node has beside the lock keys; see "Keys and channels" in docs/protocol.md.
const (
	fenceKey      = "redlock:fence"
	markerKey     = "redlock:node"
	quarantineKey = "redlock:quarantine"
	configKey     = "redlock:config"
	waitPrefix    = "redlock:wait:"   // and the lock key: the queue of its waiters (W2)
	sharedPrefix  = "redlock:shared:" // and the lock key: those of its waiters that may share it (S3)
	intentPrefix  = "redlock:rw:"     // and the lock key: a writer waits (S2)

	// Of a fair lock (O1), and the lock key: its waiters by ticket, and until when their places last.
	fairTicketPrefix = "redlock:fair:ticket:"
	fairUntilPrefix  = "redlock:fair:until:"
)

// checkNames checks the names of one lock.
func (c *Config) checkNames(names []string) error {
	if len(names) > maxNames {
		return invalid("name", "%d names are more than the %d that one lock may have; lock a name that stands for all of them", len(names), maxNames)
	}
	var seen map[string]bool // nil for a single name, which needs none
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
			return invalid("name", "the key %q is one that this library uses itself; use another name or Prefix", key)
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

// isReservedKey reports whether no lock may have the key, because this library uses it or may use it later.
func isReservedKey(key string) bool {
	switch key {
	case fenceKey, markerKey, quarantineKey, configKey:
		return true
	}
	return strings.HasPrefix(key, waitPrefix) || strings.HasPrefix(key, leaderPrefix) ||
		strings.HasPrefix(key, "redlock:fair:") || strings.HasPrefix(key, sharedPrefix) || strings.HasPrefix(key, intentPrefix)
}
