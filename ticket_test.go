package redlock_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// anyTicket is a ticket for these names.
func anyTicket(t *testing.T, name string, more ...string) redlock.Ticket {
	f, ctx := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3}), soon(t)
	c := open(t, f)
	l, err := c.Mutex(name, more...).WithOwner("a label").Acquire(ctx)
	require.NoError(t, err)
	ticket, err := l.Detach(ctx)
	require.NoError(t, err)
	return ticket
}

// Whatever bytes the names have, they arrive. The text has none that mail, a shell or a URL would change.
func TestATicketArrivesAsItWasSent(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"a", "b", "c"}, {"\xff\x00\n", "ü"}, {strings.Repeat("n", 1024)}} {
		ticket := anyTicket(t, names[0], names[1:]...)
		text, err := ticket.MarshalText()
		require.NoError(t, err)
		require.Regexp(t, `^redlock-ticket-1\.[A-Za-z0-9_-]+$`, string(text))
		require.Equal(t, names, sent(t, ticket).Names())
		asJSON, err := json.Marshal(ticket)
		require.NoError(t, err)
		var received redlock.Ticket
		require.NoError(t, json.Unmarshal(asJSON, &received))
		require.Equal(t, ticket, received)
	}
	_, err := redlock.Ticket{}.MarshalText()
	require.ErrorIs(t, err, redlock.ErrInvalid)
}

// Any change of a single character, and any cut, is noticed.
func TestATicketThatWasAlteredIsRefused(t *testing.T) {
	ticket := anyTicket(t, "x", "y")
	text, err := ticket.MarshalText()
	require.NoError(t, err)
	refused := func(altered []byte) {
		t.Helper()
		received := ticket
		require.ErrorIs(t, received.UnmarshalText(altered), redlock.ErrTicketAltered, "%s", altered)
		require.ErrorIs(t, received.UnmarshalText(altered), redlock.ErrInvalid)
		require.Equal(t, ticket, received, "it is unchanged")
	}
	for i := range text {
		for _, c := range []byte("A0_ =\x00") {
			if altered := bytes.Clone(text); altered[i] != c {
				altered[i] = c
				refused(altered)
			}
		}
		refused(text[:i])
		refused(text[i+1:])
	}
	refused(append(bytes.Clone(text), 'A'))
	refused(append(bytes.Clone(text), text...))
	refused(bytes.Replace(text, []byte("-1."), []byte("-2."), 1))
	refused([]byte("x"))
	refused(nil)
}

// A ticket is as good as the lock. Where it is only shown, its owner token is not.
func TestATicketIsNotShown(t *testing.T) {
	ticket := anyTicket(t, "nightly")
	var log bytes.Buffer
	for _, logger := range []*slog.Logger{slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewJSONHandler(&log, nil))} {
		logger.Info("handed over", "ticket", ticket, "pointer", &ticket)
	}
	text, err := ticket.MarshalText()
	require.NoError(t, err)
	for _, shown := range []string{log.String(), fmt.Sprint(ticket), fmt.Sprintf("%v %+v %#v %s %q", ticket, ticket, ticket, ticket, ticket),
		fmt.Sprintf("%v %+v %#v", &ticket, &ticket, &ticket)} {
		require.Contains(t, shown, "nightly")
		require.Contains(t, shown, "(a label)")
		require.NotContains(t, shown, ticket.Token()[:32])
		require.NotContains(t, shown, string(text))
	}
	require.Equal(t, "no ticket", redlock.Ticket{}.String())

	// Of these, fmt asks no method of the ticket.
	inside := struct{ ticket redlock.Ticket }{ticket}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t", "%p"} {
		for _, value := range []any{ticket, &ticket, inside, &inside, []any{inside}} {
			shown := fmt.Sprintf(verb, value)
			require.NotContains(t, shown, ticket.Token()[:32], verb)
			require.NotContains(t, shown, hex.EncodeToString([]byte(ticket.Token()))[:32], verb)
		}
	}
}

func FuzzTicket(f *testing.F) {
	f.Add([]byte("redlock-ticket-1."))
	f.Add([]byte("redlock-ticket-1.AQF4KzAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var ticket redlock.Ticket
		if err := ticket.UnmarshalText(text); err != nil {
			require.ErrorIs(t, err, redlock.ErrTicketAltered)
			require.Equal(t, redlock.Ticket{}, ticket)
			return
		}
		again, err := ticket.MarshalText()
		require.NoError(t, err)
		require.Equal(t, string(text), string(again), "one ticket has one text")
	})
}
