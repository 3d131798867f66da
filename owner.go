package redlock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// An owner token says who has a lock. It is the value of the lock's keys, so every script compares it as a whole, and
// other libraries see a key that is taken:
//
//	<32 hexadecimal digits>:<client>:<Config.Owner>[:<label>]
//
// The digits are random and new for each attempt. The client is the beginning of its channel's name (ownersClient). The
// owner and the label are for people. A byte of theirs that is not a visible ASCII character is written as %XX, and so
// is a colon of the owner. So a token has no space, and cannot control a terminal.
const (
	tokenDigits  = 32
	clientDigits = 8
	// shownToken is how many bytes of a token errors show. Half the digits are enough to recognise the owner. They are
	// not enough to release the owner's lock.
	shownToken = 16
	// maxOwnerBytes bounds Config.Owner and the label of WithOwner.
	maxOwnerBytes = 256
)

// A Holder says who has a lock.
type Holder struct {
	Owner string // the [Config.Owner] of its client; "": another library, or no owner is known
	Label string // what [Lock.WithOwner] added; "": nothing
	// Token is the beginning of the value of the lock's key, which is a [Lease.Token] if the lock is of this library.
	// It is enough to recognise a lease, and not enough to release it. If several share the lock it is "readers" or
	// "permits", Owner and Label are empty, and [Client.Inspect] names them.
	Token string
	// Remaining is how much longer the nodes keep the lock if the holder does nothing. Negative: for ever.
	Remaining time.Duration
}

// String is the owner with the label in brackets, "web-3/4711 (nightly-report)". Without an owner it is the beginning
// of the token. If several share the lock it is "readers" or "holders of permits". What is not printable is quoted, so the
// text has no line break and does not control a terminal.
func (h Holder) String() string {
	switch {
	case h.Token == ownedByReaders:
		return "readers"
	case h.Token == ownedByPermits:
		return "holders of permits"
	case h.Owner == "" && h.Label == "":
		more := ""
		if len(h.Token) == shownToken {
			more = "…"
		}
		return strconv.Quote(h.Token) + more
	case h.Label == "":
		return visible(h.Owner)
	default:
		return fmt.Sprintf("%s (%s)", visible(h.Owner), visible(h.Label))
	}
}

// Holder says who has the lock, as the nodes that refused said: the owner that most of them named. If two owners were
// named by as many nodes, it is the one that keeps its nodes for longer. ok is false if no node named one: there is an
// outage, or the lock is reserved for a waiter. A lock of several names may have several holders, of which this is one.
func (e *RoundError) Holder() (holder Holder, ok bool) {
	if e.Err == nil {
		return Holder{}, false
	}
	nodes, most := map[string]int{}, 0
	left := map[string]time.Duration{}
	for _, err := range e.Err.Errors {
		if d := (*Denial)(nil); errors.As(err, &d) && d.Reason == ReasonHeld && d.Owner != "" {
			if nodes[d.Owner]++; nodes[d.Owner] == 1 || longest(d.Left, left[d.Owner]) < 0 {
				left[d.Owner] = d.Left
			}
			most = max(most, nodes[d.Owner])
		}
	}
	for owner, named := range nodes {
		if named == most && (!ok || longest(left[owner], holder.Remaining) < 0) {
			holder, ok = holderIn(owner, left[owner]), true
		}
	}
	return holder, ok
}

// Holder says who has the key in the way. ok is false if the node did not say that, or if the key is reserved for a
// waiter.
func (d *Denial) Holder() (h Holder, ok bool) {
	return holderIn(d.Owner, d.Left), d.Reason == ReasonHeld && d.Owner != ""
}

// inBrief leaves out what nobody reads of a long time.
func inBrief(d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	return d.Round(100 * time.Millisecond)
}

// longest sorts the longest time first. A negative time never ends.
func longest(a, b time.Duration) int {
	switch {
	case a == b:
		return 0
	case b >= 0 && (a < 0 || a > b):
		return -1
	default:
		return 1
	}
}

// visible quotes a text that has something to quote.
func visible(text string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, hidden) {
		return strconv.Quote(text)
	}
	return text
}

// holderIn reads the value of a lock's key.
func holderIn(value string, remaining time.Duration) Holder {
	h := Holder{Token: value[:min(len(value), shownToken)], Remaining: remaining}
	if !hasTokenForm(value) {
		return h
	}
	if parts := strings.SplitN(value, ":", 4); len(parts) > 2 {
		h.Owner = unescape(parts[2])
		if len(parts) > 3 {
			h.Label = unescape(parts[3])
		}
	}
	return h
}

// hasTokenForm reports whether the value of a key has the form of an owner token of this library. The digits are in
// capital letters if the client may not publish (waiters.ownerToken).
func hasTokenForm(value string) bool {
	return digitsOf(value, "0123456789abcdefABCDEF")
}

// isForeign reports whether another library or program wrote the value, in the way of a lock.
func isForeign(value string) bool {
	return value != "" && !isOfSeveral(value) && !hasTokenForm(value)
}

// digitsOf reports whether the value begins with the digits of an owner token, made of these characters.
func digitsOf(value, of string) bool {
	digits, _, _ := strings.Cut(value, ":")
	return len(digits) == tokenDigits && strings.Trim(digits, of) == ""
}

// ownersClient is the client in an owner token; "": there is none.
func ownersClient(token string) string {
	if parts := strings.SplitN(token, ":", 3); len(parts) == 3 && hasTokenForm(token) {
		return parts[1]
	}
	return ""
}

// ownerSuffix is what follows the digits in the owner tokens of a client.
func ownerSuffix(client, owner string) string {
	return ":" + client + ":" + strings.ReplaceAll(escape(owner), ":", "%3A")
}

// withLabel is that suffix with a label.
func withLabel(suffix, label string) string {
	if label == "" {
		return suffix
	}
	return suffix + ":" + escape(label)
}

// escape writes as %XX each byte that is not a visible ASCII character.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape undoes escape. What another program wrote may be no escape: it stays as it is.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// thisProcess is the default of Config.Owner.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// checkOwner checks Config.Owner, or what WithOwner adds.
func checkOwner(field, text string) error {
	if len(text) > maxOwnerBytes {
		return invalid(field, "%.20q… has %d bytes, more than the %d allowed", text, len(text), maxOwnerBytes)
	}
	return nil
}
