package redlock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Clients of the same nodes rely on some of each other's settings: how long a lease can be, how far clocks may be
// apart, which keys are locks. The nodes hold these settings as text. The marker, which every acquire compares, holds
// a digest of the text (Q3).

// protocolVersion changes when clients of the old and the new version could not share nodes safely, or would wait for each
// other in vain. forms_test.go has what they leave on the nodes and send to each other, and fails when that changes.
const protocolVersion = 3

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
	agreedGroups   = "Groups" // only for a client of a Sharded
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
	if c.groups != nil {
		line(agreedGroups, strconv.Quote(strings.Join(c.groups, groupEnd)))
	}
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
	// Field is its name in Config, or "Protocol": the version of the protocol between clients and nodes; or "Groups": the
	// groups of a [Sharded]. Here and There are then the groups that differ, and "none" in a client of [New].
	Field string
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
	for _, d := range e.Differences {
		here, _ := strconv.Atoi(d.Here)
		there, _ := strconv.Atoi(d.There)
		switch {
		case d.Field != agreedNodes:
		case here < there:
			b.WriteString("; is a node missing from your list?")
		case there > 0:
			b.WriteString("; is there a node too many in your list?")
		}
	}
	if e.has(agreedGroups) {
		b.WriteString("; give NewSharded the same groups in all clients, and each node a Name that is the same in all, or, while " +
			"none holds a lock, change the nodes with Sharded.Enroll and ChangeConfig")
		return b.String()
	}
	set, with := e.remedy()
	fmt.Fprintf(&b, "; set %s, or, while none holds a lock, change the nodes with %s", set, with)
	return b.String()
}

// enrollFlags are the flags of redlock enroll for the fields that it can change. That of the nodes is given anyway, and the
// protocol is that of the command.
var enrollFlags = map[string]string{agreedMaxTTL: " --max-ttl ", agreedPrefix: " --prefix ", agreedDurable: " --durable=",
	agreedNoFence: " --no-fence=", agreedNodes: "", agreedQuorum: "", agreedProtocol: ""}

// remedy is what to set in this client to be as the nodes are, and with what to change the nodes to be as this client is.
func (e *ConfigError) remedy() (set, with string) {
	var values []string
	with = "redlock enroll --change-config"
	byCommand := true
	for _, d := range e.Differences {
		switch flag, known := enrollFlags[d.Field]; {
		case !known:
			byCommand = false
		case flag != "":
			with += flag + d.Here
			if d.There != "" {
				values = append(values, d.Field+" to "+d.There)
			}
		}
	}
	set, with = strings.Join(values, " and "), "`"+with+"`"
	if len(values) < len(e.Differences) {
		set = "the same in all clients"
	}
	if !byCommand { // it would leave these as they are
		with = "Client.Enroll and ChangeConfig"
	}
	return set, with
}

func (e *ConfigError) has(field string) bool {
	return slices.ContainsFunc(e.Differences, func(d ConfigDifference) bool { return d.Field == field })
}

// Unwrap returns [ErrInvalid].
func (e *ConfigError) Unwrap() error { return ErrInvalid }

// differences compares this configuration with the text that a node holds.
func (c *Config) differences(theirs string) *ConfigError {
	ours, there := readAgreement(c.agreement()), readAgreement(theirs)
	e := &ConfigError{there: theirs}
	for _, name := range []string{agreedProtocol, agreedMaxTTL, agreedSkew, agreedBand, agreedNodes, agreedQuorum,
		agreedDurable, agreedNoFence, agreedPrefix, agreedGroups} {
		switch {
		case ours[name] == there[name]:
		case name == agreedGroups:
			e.Differences = append(e.Differences, groupsDiffer(ours[name], there[name]))
		default:
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

// groupEnd ends the id of a group, which has the name of one node a line.
const groupEnd = "\n\n"

// readGroups returns the ids of the groups, the nodes' own first.
func readGroups(value string) ([]string, error) {
	if value == "" { // the nodes are no group of a Sharded
		return nil, nil
	}
	text, err := strconv.Unquote(value)
	return strings.Split(text, groupEnd), err
}

func groupText(id string) string { return "(" + strings.ReplaceAll(id, "\n", ", ") + ")" }

// groupsDiffer names the groups that only one side has. With all groups nobody would find them.
func groupsDiffer(here, there string) ConfigDifference {
	ours, _ := readGroups(here)
	theirs, _ := readGroups(there)
	only := func(these, others []string) string {
		var text []string
		for _, id := range these {
			if !slices.Contains(others, id) {
				text = append(text, groupText(id))
			}
		}
		return strings.Join(text, " and ")
	}
	d := ConfigDifference{Field: agreedGroups, Here: only(ours, theirs), There: only(theirs, ours)}
	switch {
	case ours == nil:
		d.Here = "none"
	case theirs == nil:
		d.There = "none"
	case d.Here == "" && d.There == "": // this node is in another group there
		d.Here, d.There = groupText(ours[0]), groupText(theirs[0])
	case d.Here == "":
		d.Here = "without " + d.There
	case d.There == "":
		d.There = "without " + d.Here
	}
	return d
}
