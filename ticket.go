package redlock

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"
)

// A Ticket is a lock on its way from one process to another: [Lease.Detach] makes it, [Client.Adopt] takes it over. It
// is a value that holds nothing. MarshalText makes text of it that can be sent or stored: about as long as the names
// and 200 bytes, without spaces, and safe in a URL. The zero Ticket is for nothing.
//
// Whoever has the text can take the lock. String, the fmt verbs and the log show only a part of it.
type Ticket struct {
	names []string
	// secret is the owner token; nil: the zero Ticket. fmt follows no pointer inside a value, and calls no method of a
	// Ticket for %d or %p, or in an unexported field.
	secret *string
	ttl    time.Duration
	left   time.Duration
}

// Names returns a copy of the lock's names.
func (t Ticket) Names() []string { return slices.Clone(t.names) }

// Token is the owner token of the lock while nobody has taken it over: [Client.ReleaseToken] with it gives up the
// ticket.
func (t Ticket) Token() string {
	if t.secret == nil {
		return ""
	}
	return *t.secret
}

// Expires is how long the nodes keep the lock for this ticket, counted from the return of [Lease.Detach]: the lock's
// TTL, less what the hand-over took. A try to adopt it may prolong that.
func (t Ticket) Expires() time.Duration { return t.left }

// String shows what the ticket is for, and not the ticket.
func (t Ticket) String() string {
	if len(t.names) == 0 {
		return "no ticket"
	}
	return fmt.Sprintf("ticket for %s from %s", listed(t.names), holderIn(t.Token(), 0))
}

// GoString is String, so that no verb shows the ticket.
func (t Ticket) GoString() string { return t.String() }

// LogValue is String, so that no log has the ticket.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ticketPrefix begins the text of a ticket. The number is the version of its form.
const ticketPrefix = "redlock-ticket-1."

// sumBytes is how much of a hash the text has, to notice that it was cut or changed on the way. The nodes check the
// owner token; nobody can guess that.
const sumBytes = 8

// MarshalText returns the text of the ticket. The zero Ticket has none: [ErrInvalid].
func (t Ticket) MarshalText() ([]byte, error) {
	if len(t.names) == 0 {
		return nil, invalid("Ticket", "it is the zero Ticket; get one from Lease.Detach")
	}
	b := binary.AppendUvarint(nil, uint64(len(t.names)))
	for _, text := range append(t.Names(), t.Token()) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	b = binary.AppendUvarint(b, uint64(t.ttl))
	b = binary.AppendUvarint(b, uint64(t.left))
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.AppendEncode([]byte(ticketPrefix), append(b, sum[:sumBytes]...)), nil
}

// UnmarshalText reads the text of a ticket. The error is [ErrTicketAltered] if the text is not what MarshalText made.
// The ticket is then unchanged.
func (t *Ticket) UnmarshalText(text []byte) error {
	coded, ok := bytes.CutPrefix(text, []byte(ticketPrefix))
	b, err := base64.RawURLEncoding.Strict().AppendDecode(nil, coded)
	if !ok || err != nil || len(b) < sumBytes {
		return ErrTicketAltered
	}
	b, sum := b[:len(b)-sumBytes], b[len(b)-sumBytes:]
	if right := sha256.Sum256(b); !bytes.Equal(right[:sumBytes], sum) {
		return ErrTicketAltered
	}
	r := ticketReader{rest: b}
	var read Ticket
	count := r.number()
	if count < 1 || count > maxNames {
		return ErrTicketAltered
	}
	for range count {
		read.names = append(read.names, r.text())
	}
	token := r.text()
	read.secret = &token
	read.ttl, read.left = r.duration(), r.duration()
	if r.bad || len(r.rest) > 0 || !hasTokenForm(token) {
		return ErrTicketAltered
	}
	*t = read
	return nil
}

// A ticketReader reads what MarshalText wrote.
type ticketReader struct {
	rest []byte
	bad  bool
}

func (r *ticketReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *ticketReader) text() string {
	n := r.number()
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}

func (r *ticketReader) duration() time.Duration {
	n := r.number()
	if n > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return time.Duration(n)
}

// A ticketError is one of the errors of tickets. It matches kind too.
type ticketError struct {
	text string
	kind error
}

func (e *ticketError) Error() string { return e.text }
func (e *ticketError) Unwrap() error { return e.kind }

var (
	// ErrTicketUsed: another has the lock. It adopted the ticket, or acquired the lock after the ticket had expired. It
	// matches [ErrHeld] too.
	ErrTicketUsed error = &ticketError{"redlock: ticket used: another has the lock", ErrHeld}
	// ErrTicketExpired: too few nodes still have the lock for this ticket. It came too late, or whoever adopted it has
	// released the lock again. It matches [ErrLost] too.
	ErrTicketExpired error = &ticketError{"redlock: ticket expired: the nodes no longer have it", ErrLost}
	// ErrTicketAltered: the text is no ticket. It was cut short or changed on its way; send it again. It matches
	// [ErrInvalid] too.
	ErrTicketAltered error = &ticketError{"redlock: ticket altered: it is not the text that Detach made", ErrInvalid}
)

// label is what the lock was held for.
func (t *Ticket) label() string { return holderIn(t.Token(), 0).Label }
