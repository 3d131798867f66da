package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/hashicorp/go-multierror"
)

// AgreedConfig returns cfg with these fields filled in from the nodes, where they are zero in cfg: MaxTTL,
// MaxClockSkew, ClockBand, Quorum, Prefix, Durable and NoFence. It is for tools that work on nodes that other programs
// use. It connects, asks and disconnects. If the nodes are one group of a [Sharded], a client of the result acquires only
// names that belong to this group.
//
// It uses the configuration that the largest number of the answering nodes hold, however many hold none: new nodes, and
// nodes that have forgotten it. Nodes that cannot change that are not waited for. If none holds any, it returns cfg
// unchanged, and MaxTTL stays 0 if it was. Then do not guess: the first client that asks decides it for all. Quorum is
// filled in only if the configuration is for as many nodes as cfg has.
//
// If fewer than a quorum answer, it returns what these hold, and a [*RoundError] that is [ErrNoQuorum]: the others may
// hold another configuration. To look at the nodes, that is enough. To acquire locks, ask again later. Other errors are
// [ErrInvalid] and ctx.Err().
func AgreedConfig(ctx context.Context, cfg Config) (Config, error) {
	look := cfg
	look.Hooks, look.Logger, look.onlyLook = Hooks{}, nil, true
	if look.MaxTTL == 0 { // New must not refuse a TTL that is above the default and fits the nodes' MaxTTL
		look.MaxTTL = max(defaultMaxTTL, look.TTL)
	}
	if look.TTL == 0 {
		look.TTL = look.MaxTTL
	}
	c, err := New(look)
	if err != nil {
		return cfg, err
	}
	defer func() {
		c.cancel() // it only looks, so Close need not wait for nodes that do not answer
		c.Close()
	}()
	if err := c.awaitOpen(ctx); err != nil {
		return cfg, err
	}
	if text, count := mostHeld(c.knownConfigs()); count >= c.need && 2*count > len(c.nodes) {
		return cfg.adopt(readAgreement(text)) // whatever the others hold: a node that is away costs a tool no time
	}
	if err := c.awaitAll(ctx); err != nil {
		return cfg, err
	}
	held := c.heldConfigs(ctx)
	silent := &RoundError{Op: "read the configuration", Need: c.need, kind: ErrNoQuorum}
	for i, h := range held {
		if h.err != nil {
			silent.Unknown++
			silent.Err = multierror.Append(silent.Err, &NodeError{Node: c.nodes[i].endpoint.name, Err: h.err})
			continue
		}
		silent.Granted++
	}
	if most, _ := mostHeld(held); most != "" {
		if cfg, err = cfg.adopt(readAgreement(most)); err != nil {
			return cfg, err
		}
	}
	switch {
	case silent.Granted >= c.need:
		return cfg, nil
	case ctx.Err() != nil:
		return cfg, ctx.Err()
	}
	return cfg, silent
}

// A heldConfig is the text of the configuration that a node holds, "" if it holds none; or why that is not known.
type heldConfig struct {
	text string // "" if there is an err
	err  error
}

// mostHeld is the configuration that the largest number of nodes hold, and how many do; "" if none holds any.
func mostHeld(held []heldConfig) (most string, count int) {
	texts := map[string]int{}
	for _, h := range held {
		if h.text == "" {
			continue
		}
		if texts[h.text]++; texts[h.text] > count {
			most, count = h.text, texts[h.text]
		}
	}
	return most, count
}

// knownConfigs is which configuration each node is known to hold.
func (c *Client) knownConfigs() []heldConfig {
	held := make([]heldConfig, len(c.nodes))
	for i, n := range c.nodes {
		held[i], _ = n.agreed()
	}
	return held
}

// heldConfigs asks all nodes which configuration they hold, also those on which it does not bind now.
func (c *Client) heldConfigs(ctx context.Context) []heldConfig {
	held := make([]heldConfig, len(c.nodes))
	type reply struct {
		node int
		heldConfig
	}
	replies := make(chan reply, len(c.nodes)) // never blocks a reader
	asked := 0
	for i, n := range c.nodes {
		var known bool
		if held[i], known = n.agreed(); known || held[i].err != nil {
			continue
		}
		asked++
		held[i].err = errSilent
		n.command("GET", []any{configKey}, func(value any, err error) {
			text, err := redis.String(value, err)
			if errors.Is(err, redis.ErrNil) || err == nil && readAgreement(text)[agreedMaxTTL] == "" { // none, or not ours
				text, err = "", nil
			}
			replies <- reply{i, heldConfig{text, err}}
		})
	}
	_ = gather(ctx, c, c.cfg.NodeTimeout, asked, replies, func(r reply) { held[r.node] = r.heldConfig }) // else errSilent
	return held
}

// adopt fills in the fields that are zero.
func (c Config) adopt(there map[string]string) (Config, error) {
	var errs []string
	duration := func(field string, d *time.Duration) {
		value, err := time.ParseDuration(there[field])
		switch {
		case *d != 0:
		case err != nil:
			errs = append(errs, field)
		default:
			*d = value
		}
	}
	duration(agreedMaxTTL, &c.MaxTTL)
	duration(agreedSkew, &c.MaxClockSkew)
	duration(agreedBand, &c.ClockBand)
	if quorum, err := strconv.Atoi(there[agreedQuorum]); err != nil {
		errs = append(errs, agreedQuorum)
	} else if nodes, err := strconv.Atoi(there[agreedNodes]); c.Quorum == 0 && err == nil && nodes == len(c.Nodes) {
		c.Quorum = quorum
	}
	c.Durable = c.Durable || there[agreedDurable] == "true"
	c.NoFence = c.NoFence || there[agreedNoFence] == "true"
	if prefix, err := strconv.Unquote(there[agreedPrefix]); err != nil {
		errs = append(errs, agreedPrefix)
	} else if c.Prefix == "" {
		c.Prefix = prefix
	}
	if groups, err := readGroups(there[agreedGroups]); err != nil {
		errs = append(errs, agreedGroups)
	} else if c.groups == nil {
		c.groups = groups
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("%w: the key %q on the nodes does not tell %s", ErrInvalid, configKey, strings.Join(errs, ", "))
	}
	return c, nil
}

// agreed is the configuration that binds on the node, if one is known to; or why it cannot be asked.
func (n *node) agreed() (held heldConfig, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.up || !n.readiness.known:
		return heldConfig{err: cmp.Or(n.why, errConnecting)}, false
	case n.readiness.differs != nil:
		return heldConfig{text: n.readiness.differs.there}, true
	case n.readiness.ready:
		return heldConfig{text: n.agreement.text}, true
	default: // new, in quarantine, or it has forgotten its marker and not its configuration
		return heldConfig{}, false
	}
}
