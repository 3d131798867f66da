package redlock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Clients of the same nodes rely on some of each other's settings: how long a lease can be, how far clocks may be
// apart, which keys are locks. The nodes hold these settings as text. The marker, which every acquire compares, holds
// a digest of the text (Q3).

// protocolVersion changes when clients of the old and the new version could not share nodes safely.
const protocolVersion = 2

// The agreed settings, in the order of the text.
const (
	agreedProtocol = "Protocol"
	agreedMaxTTL   = "MaxTTL"
	agreedSkew     = "MaxClockSkew"
	agreedBand     = "ClockBand"
	agreedNodes    = "Nodes"
	agreedQuorum   = "Quorum"
	agreedDurable  = "Durable"
	agreedNoFence  = "NoFence"
	agreedPrefix   = "Prefix"
)

// agreement is the text: one line for each setting, with its name and its value.
func (c *Config) agreement() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s %v\n", name, value) }
	line(agreedProtocol, protocolVersion)
	line(agreedMaxTTL, strconv.FormatInt(millis(c.MaxTTL), 10)+"ms") // ready.lua reads it
	line(agreedSkew, c.MaxClockSkew)
	line(agreedBand, max(c.ClockBand, -1)) // every negative value means off
	line(agreedNodes, len(c.Nodes))
	line(agreedQuorum, c.Quorum)
	line(agreedDurable, c.Durable)
	line(agreedNoFence, c.NoFence)
	line(agreedPrefix, strconv.Quote(c.Prefix))
	return b.String()
}

type agreement struct{ text, digest string }

func agreementOf(c *Config) agreement {
	text := c.agreement()
	if c.protocol != nil && c.protocol.omits(configAgreed) {
		text = "nothing\n"
	}
	return agreement{text, digestOf(text)}
}

// digestOf is short, because every acquire carries it. It only has to tell two texts apart; it protects no secret.
func digestOf(agreement string) string {
	sum := sha256.Sum256([]byte(agreement))
	return hex.EncodeToString(sum[:8])
}

// readAgreement returns the value of each setting in the text.
func readAgreement(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			values[name] = value
		}
	}
	return values
}

// A ConfigError is the reason why a node that is fit to vote refuses this client: the node holds the configuration of
// the other clients, and this client's configuration differs. [errors.Is] matches it with [ErrInvalid]. Set the same
// values in all clients, or change what the nodes hold with [Client.Enroll] and [ChangeConfig].
type ConfigError struct {
	Differences []ConfigDifference // at least one

	there string // the text that the node holds
}

// A ConfigDifference is one field of [Config] in which this client differs from what a node holds.
type ConfigDifference struct {
	Field string // its name in Config, or "Protocol": the version of the protocol between clients and nodes
	Here  string // its value in this client
	There string // its value on the node; "" if it is not known
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString("this client is configured differently from the clients that the node knows: ")
	for i, d := range e.Differences {
		if i > 0 {
			b.WriteString(", ")
		}
		there := d.There
		if there == "" {
			there = "not known"
		}
		fmt.Fprintf(&b, "%s is %s here and %s there", d.Field, d.Here, there)
	}
	b.WriteString("; set the same in all clients, or, while none holds a lock, change the nodes with `redlock enroll --change-config`")
	return b.String()
}

// Unwrap returns [ErrInvalid].
func (e *ConfigError) Unwrap() error { return ErrInvalid }

// differences compares this configuration with the text that a node holds.
func (c *Config) differences(theirs string) *ConfigError {
	ours, there := readAgreement(c.agreement()), readAgreement(theirs)
	e := &ConfigError{there: theirs}
	for _, name := range []string{agreedProtocol, agreedMaxTTL, agreedSkew, agreedBand, agreedNodes, agreedQuorum,
		agreedDurable, agreedNoFence, agreedPrefix} {
		if ours[name] != there[name] {
			e.Differences = append(e.Differences, ConfigDifference{Field: name, Here: plainly(ours[name]), There: plainly(there[name])})
		}
	}
	if len(e.Differences) == 0 { // only the digests differ: somebody changed the keys by hand
		e.Differences = []ConfigDifference{{Field: agreedProtocol, Here: ours[agreedProtocol]}}
	}
	return e
}

// plainly writes a duration as Go does, so that 30000ms is 30s.
func plainly(value string) string {
	if d, err := time.ParseDuration(value); err == nil {
		return d.String()
	}
	return value
}

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
