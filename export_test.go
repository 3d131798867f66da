package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// A Switch turns one defence off.
type Switch struct {
	Name  string
	apply func(*Config)
}

// Off turns the defence off for a client made from this configuration.
func (s Switch) Off(cfg *Config) {
	cfg.ownProtocol()
	s.apply(cfg)
}

// Seed makes the client's random choices repeatable, but not its tokens.
func Seed(cfg *Config, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	cfg.ownProtocol().random = func(n time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(n)))
	}
}

// LongPauses makes each random pause of the client as long as it can be, as between attempts to connect.
func LongPauses(cfg *Config) {
	cfg.ownProtocol().random = func(n time.Duration) time.Duration { return n - 1 }
}

// AwaitAll waits until every node has said whether it may grant, or failed to connect, once.
func AwaitAll(c *Client, ctx context.Context) error { return c.awaitAll(ctx) }

// InLine is how many callers of this client want the lock and do not have it (W1).
func InLine(c *Client, name string, more ...string) int {
	c.localQueues.mu.Lock()
	defer c.localQueues.mu.Unlock()
	q, contended := c.localQueues.byName[newResource("", name, more).queueKey]
	switch {
	case !contended:
		return 0
	case q.behind == nil:
		return 1
	default:
		return 1 + q.behind.Len()
	}
}

// KnownToHave is of how many nodes the client knows that they had the keys of the lease once.
func KnownToHave(l *Lease) int { return l.ownership.hadKeys().len() }

// Proven is how many nodes the client knows to have been vouched for since they have the keys of the lease (R1).
func Proven(l *Lease) int { return l.ownership.provenAt().len() }

// Answered reports whether the nodes have answered all that the lease's client sent to them.
func Answered(l *Lease) bool {
	waiting := 0
	for _, n := range l.ownership.client.nodes {
		n.mu.Lock()
		waiting += len(n.queue) + n.flight.len()
		n.mu.Unlock()
	}
	return waiting == 0
}

// Owed is how many releases the client still owes to this node (L3).
func Owed(c *Client, node int) int {
	n := c.nodes[node]
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.owed)
}

// IsTight reports whether no more than a quorum of the nodes is of use and not slow.
func IsTight(c *Client) bool { return c.isTight() }

// FenceSlot is the fence slot of a name (F3), without a prefix.
func FenceSlot(name string) int { return fenceSlot(name) }

// ProbeFor is the node that the client asks first for a contended lock (W3), by its index in Config.Nodes; -1: none.
func ProbeFor(c *Client, name string, more ...string) int {
	n := c.probeFor(newResource(c.cfg.Prefix, name, more))
	if n == nil {
		return -1
	}
	return n.index
}

// FirstRanked is the node that decides first between those who try a lock at once (T2).
func FirstRanked(c *Client) int { return c.ranking()[0] }

// LostPoll sets how often a waiter asks again without any message (W2). Tests of messages set it so long that this
// never happens.
func LostPoll(d time.Duration) func(*Config) {
	return func(cfg *Config) { cfg.ownProtocol().lostPoll = d }
}

// NeverSlow has the client ask first the node that the name and the servers choose (W3), also on a busy machine.
func NeverSlow(cfg *Config) {
	cfg.ownProtocol().slowMargin = time.Hour
}

// NeverLate has no round ask further nodes because the first ones are late, also on a busy machine (A2).
func NeverLate(cfg *Config) {
	cfg.ownProtocol().lateMargin = time.Hour
}

// AskAll has every round ask all nodes at once, for tests of what a node that is not asked first does.
func AskAll(cfg *Config) {
	cfg.ownProtocol().asksAll = true
}

// OneByOne has no more than one attempt under way at first, so that the others wait.
func OneByOne(cfg *Config) {
	cfg.ownProtocol().firstLimit = 1
}

// AlwaysLight has also a single acquire go out in its light form, however far away the server is.
func AlwaysLight(cfg *Config) {
	cfg.ownProtocol().lightAlone = true
}

// NoInfoInScripts is for servers whose scripts cannot read INFO.
func NoInfoInScripts(cfg *Config) {
	cfg.ownProtocol()
	edit("ready", "redis.pcall('INFO', 'server')", "redis.pcall('NOTHING')")(cfg)
}

// ownProtocol gives the configuration a copy of its protocol, which may be changed.
func (c *Config) ownProtocol() *protocol {
	p := *standard
	if c.protocol != nil {
		p = *c.protocol
	}
	c.protocol = &p
	return c.protocol
}

// Refusal is why this node's messages do not reach the client; nil: they do.
func Refusal(c *Client, node int) error { return c.waiters.refusal(node) }

func omit(d defence) func(*Config) {
	return func(cfg *Config) { cfg.protocol.off |= d }
}

func both(first, second func(*Config)) func(*Config) {
	return func(cfg *Config) { first(cfg); second(cfg) }
}

// ScriptName is the name of the script that has this SHA; "": none has.
func ScriptName(sha string) string {
	for _, s := range standard.scripts() {
		if s.sha == sha {
			return s.name
		}
	}
	return ""
}

// edit changes one line of a script.
func edit(script, old, new string) func(*Config) {
	return func(cfg *Config) {
		was := cfg.protocol
		cfg.protocol = newProtocol(func(name, source string) string {
			if name != script {
				return source
			}
			if strings.Count(source, old) != 1 {
				panic(fmt.Sprintf("scripts/%s.lua has no single %q", name, old))
			}
			return strings.Replace(source, old, new, 1)
		})
		cfg.protocol.off, cfg.protocol.random, cfg.protocol.lightAlone = was.off, was.random, was.lightAlone
	}
}

// WithoutBand makes a quarantine no longer by how far clocks in order may be apart (Q1).
func WithoutBand(cfg *Config) { cfg.ownProtocol().off |= clocksApart }

// WithoutMisreading believes the other nodes' clocks as if they were read exactly (Q1).
func WithoutMisreading(cfg *Config) { cfg.ownProtocol().off |= clocksMisread }

// Switches are all switches but one: the clock that counts suspend is [Config.Clock].
var Switches = map[string]Switch{}

func init() {
	for name, apply := range map[string]func(*Config){
		"late-grant release":               omit(releaseLateGrants),
		"clean-up after cancel":            omit(cleanUpAfterCancel),
		"fresh token":                      omit(freshToken),
		"final validity check":             omit(finalValidity),
		"an expired lease stays expired":   omit(takenOnce),
		"keys taken in time":               omit(takenInTime),
		"ballots of the servers":           omit(serverBallots),
		"data set vouched for":             omit(dataSetVouched),
		"quarantine by the others' clocks": both(omit(clocksOfOthers), edit("ready", "own - now > (longest + margin) * 1000 + tolerated", "false")),
		"data set named":                   omit(dataSetNamed),
		"Durable distrusts the promoted":   omit(promotedForgets),
		"agreed configuration":             omit(configAgreed),
		"Close ends the renewing":          omit(ticksDrained),
		"Close awaits calls":               omit(callsAwaited),
		"hooks apart":                      omit(userApart),
		"leaving the queue":                omit(queuesLeft),
		"held told from outage":            omit(lossClassified),
		"a winner for every try":           omit(triesDecided),
		"a giver stops first":              omit(giverStops),
		"a failed adopter gives back":      omit(adopterGivesBack),
		"a ticket's token compared":        edit("adopt", "elseif owner ~= from then", "elseif false then"),
		"marker read last":                 omit(markerReadLast),
		"late-asked nodes released":        omit(hedgesReleased),
		"fence comparison": both(omit(fenceCompared),
			edit("acquire", "local stale = ballot ~= '0' and tonumber(ballot) <= highest and not raised", "local stale = ballot == '-1'")),
		"fence persistence": both(omit(fenceStored), edit("acquire", "redis.call('ZADD', 'redlock:fence', ballot, ARGV[i])", "")),
		"quarantine": both(omit(markerChecked),
			edit("acquire", "if redis.call('GET', 'redlock:node') ~= ARGV[1] then return {'unready', now} end", "")),
		// A node that refuses one of several names keeps the names before it.
		"all names or none": edit("acquire", "      held = KEYS[i]\n      break",
			"      held = KEYS[i]\n      for j = 1, i - 1 do redis.call('SET', KEYS[j], token, 'PX', ttl) end\n      break"),
		"quarantine length": edit("ready", "local length = longest + margin", "local length = 1"),
		"clock band":        func(cfg *Config) { cfg.ClockBand = -1 },
		// A shared lock key that ends with the entry that was written last, as a shared time to live does.
		"a key lasts as long as its last entry": edit("entries", "expireWithLast(key)\n  return alone", "redis.call('PEXPIREAT', key, whole(math.ceil(ends / 1000)))\n  return alone"),
		// A release that deletes the keys, whatever is left of a minimum hold.
		"the rest of a minimum hold": edit("release", "rest ~= '0' and owner == ARGV[1]", "false"),
		// A release that deletes all of a shared key.
		"an entry for each": edit("unshare", "not drop(key, entry)", "redis.call('DEL', key) == 0"),
		// A majority for each permit, counted by the nodes, whatever the slot is.
		"one slot on all nodes":   edit("share", "busy, wants = busy or owners[slot], wants + 1", "wants = wants + 1"),
		"intent of a writer":      edit("acquire", "redis.call('SET', intent, who .. ' ' .. asked, 'PX', math.max(3000, redis.call('PTTL', intent)))", ""),
		"intent of a fair writer": edit("fair", "if kind == 'reader' and ticket ~= '0' then", "if false then"),

		"order of arrival":         edit("fair", "if ahead > 0 then", "if false then"),
		"tickets above a quorum's": omit(ticketsCompared),
		"places end":               edit("fair", "if #over == 0 then break end", "do break end"),
		"places left":              omit(placesLeft),
		"far ballots agreed":       omit(farBallotsAgreed),
	} {
		Switches[name] = Switch{name, apply}
	}
}

// NextWaiter is what the next waiter of this client for a fair lock is called in the queues.
func NextWaiter(c *Client) string {
	next := c.waiters.newWaiter()
	c.waiters.mu.Lock()
	defer c.waiters.mu.Unlock()
	c.waiters.made--
	return next
}

// Waiters is how many waiters of this client listen for a release.
func Waiters(c *Client) int { return int(c.waiters.listening.Load()) }

// IsProbe reports whether the client would ask that node first for some lock.
func IsProbe(c *Client, node int) bool {
	for i := range 100 {
		if ProbeFor(c, fmt.Sprint("some lock/", i)) == node {
			return true
		}
	}
	return false
}

// ShortID names the client in its owner tokens and in the names of channels.
func ShortID(c *Client) string { return c.waiters.id }

// TrialFailure is what a trial says of a node where this command failed.
func TrialFailure(command string, err error) error {
	for _, t := range trialCommands("x", "me") {
		if t.name == command {
			return refusals([]refusedCommand{{t, err}})
		}
	}
	return nil
}

// Join is how a call says what ended it and what was in its way.
func Join(first, second error) error { return join(first, second) }

// AcquiredAt is when the lock was acquired (A4), by its client's clock.
func AcquiredAt(l *Lease) Instant { return l.ownership.acquired }

// NextRenewal is how long it takes until the lease is renewed.
func NextRenewal(l *Lease) time.Duration {
	o := l.ownership
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.renewAt.Sub(o.client.cfg.Clock.Now())
}

// UnderWay is how many attempts are under way or wait to be admitted.
func UnderWay(c *Client) int {
	a := &c.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.underWay + a.waiting.Len()
}

// IsWanted does what a message does that somebody waits for the key.
func IsWanted(c *Client, key string) { c.waiters.isWanted(key) }

// IsUnfit reports whether the client gives this node no vote because of what it is (N1).
func IsUnfit(c *Client, node int) bool { return c.nodes[node].unfitNow() != nil }
