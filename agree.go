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

// All clients of the same nodes must be configured alike where one counts on what the others do: how long a
// lease can be, how far clocks may be apart, which keys are locks. The nodes hold that part of the configuration,
// as text and, in the marker that every acquire compares, as a digest of the text (Q3).

// protocolVersion changes whenever clients of two versions could not share nodes safely.
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

// agreement is the text: a line for each setting, its name and its value.
func (c *Config) agreement() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s %v\n", name, value) }
	line(agreedProtocol, protocolVersion)
	line(agreedMaxTTL, strconv.FormatInt(millis(c.MaxTTL), 10)+"ms") // ready.lua reads it
	line(agreedSkew, c.MaxClockSkew)
	line(agreedBand, max(c.ClockBand, -1)) // negative is off, however negative
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

// digestOf is short, because every acquire carries it. It is compared, and keeps no secret.
func digestOf(agreement string) string {
	sum := sha256.Sum256([]byte(agreement))
	return hex.EncodeToString(sum[:8])
}

// readAgreement is the value of each setting of a text.
func readAgreement(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			values[name] = value
		}
	}
	return values
}

// A ConfigError is why a node that is fit to vote refuses this client: the node holds the configuration of the other
// clients, and this client's differs. It is [ErrInvalid] by [errors.Is]. Set the same values in all clients, or change
// what the nodes hold with [Client.Enroll] and [ChangeConfig].
type ConfigError struct {
	Differences []ConfigDifference // at least one

	there string // the configuration that the node holds, as it is written there
}

// A ConfigDifference is one field of [Config] on which the clients of a node do not agree.
type ConfigDifference struct {
	Field string // its name in Config, or "Protocol": the version of what clients and nodes say to each other
	Here  string // its value in this client
	There string // its value on the node; "" if the node does not tell
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

// differences compares this configuration with what a node has.
func (c *Config) differences(theirs string) *ConfigError {
	ours, there := readAgreement(c.agreement()), readAgreement(theirs)
	e := &ConfigError{there: theirs}
	for _, name := range []string{agreedProtocol, agreedMaxTTL, agreedSkew, agreedBand, agreedNodes, agreedQuorum,
		agreedDurable, agreedNoFence, agreedPrefix} {
		if ours[name] != there[name] {
			e.Differences = append(e.Differences, ConfigDifference{Field: name, Here: plainly(ours[name]), There: plainly(there[name])})
		}
	}
	if len(e.Differences) == 0 { // the digests differ and the texts do not: somebody has written there by hand
		e.Differences = []ConfigDifference{{Field: agreedProtocol, Here: ours[agreedProtocol]}}
	}
	return e
}

// plainly writes a duration as Go does.
func plainly(value string) string {
	if d, err := time.ParseDuration(value); err == nil {
		return d.String()
	}
	return value
}

// AgreedConfig returns cfg with MaxTTL, MaxClockSkew, ClockBand, Quorum, Prefix, Durable and NoFence filled in from the
// nodes, where they are zero in cfg. It is for tools that work on nodes which others use. It connects, asks and
// disconnects.
//
// New nodes, and nodes in quarantine, hold no configuration that binds. If no configuration is held by more nodes than
// hold none, of those that answer, cfg is returned as it is. Errors are [ErrInvalid], [ErrNoQuorum] if no node answers,
// and ctx.Err().
func AgreedConfig(ctx context.Context, cfg Config) (Config, error) {
	look := cfg
	look.Hooks, look.Logger, look.onlyLook = Hooks{}, nil, true
	if look.MaxTTL == 0 { // what else cfg has is to fit what the nodes tell, and not the default
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

// adopt fills in what is zero.
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
