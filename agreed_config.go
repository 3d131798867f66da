package redlock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AgreedConfig returns cfg with these fields filled in from the nodes, where they are zero in cfg: MaxTTL,
// MaxClockSkew, ClockBand, Quorum, Prefix, Durable and NoFence. It is for tools that work on nodes that other programs
// use. It connects, asks and disconnects.
//
// It uses the configuration that the largest number of the answering nodes hold. New nodes, and nodes in quarantine,
// hold none that binds. If at least as many nodes hold none, it returns cfg unchanged. Quorum is filled in only if the
// configuration is for as many nodes as cfg has. Errors are [ErrInvalid], [ErrNoQuorum] if no node answers, and
// ctx.Err().
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
	defer c.Close()
	if err := c.awaitAll(ctx); err != nil {
		return cfg, err
	}
	texts := map[string]int{}
	heard, most := 0, ""
	var why error
	for _, n := range c.nodes {
		text, known, err := n.agreed()
		if !known {
			why = fmt.Errorf("%s: %w", n.endpoint.name, err)
			continue
		}
		heard++
		if texts[text]++; text != "" && texts[text] > texts[most] {
			most = text
		}
	}
	if heard == 0 {
		return cfg, fmt.Errorf("%w: no node told its configuration; %w", ErrNoQuorum, why)
	}
	if most == "" || texts[most] <= texts[""] {
		return cfg, nil
	}
	return cfg.adopt(readAgreement(most))
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
	if len(errs) > 0 {
		return c, fmt.Errorf("%w: the key %q on the nodes does not tell %s", ErrInvalid, configKey, strings.Join(errs, ", "))
	}
	return c, nil
}

// agreed is the configuration that binds on the node, "" if none does; or why that is not known.
func (n *node) agreed() (text string, known bool, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.up || !n.readiness.known:
		return "", false, cmp.Or(n.why, errConnecting)
	case n.readiness.differs != nil:
		return n.readiness.differs.there, true, nil
	case n.readiness.ready:
		return n.agreement.text, true, nil
	default: // new, or in a quarantine that a client of our own configuration began
		return "", true, nil
	}
}
