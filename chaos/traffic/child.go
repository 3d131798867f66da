package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/redlock/chaos/subject"
)

// A client that is to be stopped, or to die, has to be a process of its own. It is told what to do, and tells
// what it saw, in lines of JSON. Its times are those of the machine's monotonic clock, which both read.

// An order is what a child is told.
type order struct {
	Do string `json:"do"` // open, acquire, write, release

	Subject string   `json:"subject,omitempty"` // open
	URLs    []string `json:"urls,omitempty"`
	TTL     int64    `json:"ttl,omitempty"` // nanoseconds
	Durable bool     `json:"durable,omitempty"`
	Client  int      `json:"client,omitempty"`

	Name     string `json:"name,omitempty"`     // acquire
	Patience int64  `json:"patience,omitempty"` // nanoseconds
	Die      bool   `json:"die,omitempty"`      // in the first gap between two commands; else once it is granted
}

// A word is what a child tells.
type word struct {
	Told  string `json:"told"`            // opened, granted, refused, failed, looked, wrote, released
	At    int64  `json:"at,omitempty"`    // when, by the machine's monotonic clock
	Until int64  `json:"until,omitempty"` // when it last saw its lease valid
	Valid bool   `json:"valid,omitempty"` // looked: what it saw
	Fence uint64 `json:"fence,omitempty"`
	Token string `json:"token,omitempty"`
	Error string `json:"error,omitempty"`
}

// ServeChild is what the process of a child does: it obeys the orders in in until that ends. find turns the
// name of a subject into the subject.
func ServeChild(ctx context.Context, in io.Reader, out io.Writer, find func(name string) (subject.Subject, error)) error {
	c := &child{find: find, in: json.NewDecoder(in), out: json.NewEncoder(out)}
	defer c.close()
	for {
		var o order
		if err := c.in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("an order: %w", err)
		}
		if err := c.obey(ctx, o); err != nil {
			return err
		}
	}
}

type child struct {
	find   func(string) (subject.Subject, error)
	in     *json.Decoder
	out    *json.Encoder
	client subject.Client
	lease  subject.Lease
	dying  bool
	until  int64
}

func (c *child) close() {
	if c.client != nil {
		_ = c.client.Close() // whoever ordered has gone
	}
}

func (c *child) obey(ctx context.Context, o order) error {
	switch {
	case o.Do == "open":
		return c.open(ctx, o)
	case c.client == nil:
		return errors.New("it was not opened")
	case o.Do == "acquire":
		return c.acquire(ctx, o)
	case c.lease == nil:
		return errors.New("it has no lease")
	case o.Do == "write":
		return c.stopAndWrite()
	case o.Do == "release":
		ctx, done := context.WithTimeout(ctx, time.Duration(o.Patience))
		defer done()
		c.look()
		w := word{Told: "released", Until: c.until}
		if err := c.lease.Release(ctx); err != nil {
			w.Error = err.Error()
		}
		return c.tell(w)
	}
	return fmt.Errorf("there is no order %q", o.Do)
}

func (c *child) open(ctx context.Context, o order) error {
	s, err := c.find(o.Subject)
	if err != nil {
		return err
	}
	c.client, err = s.Open(ctx, subject.Options{
		Client: o.Client, URLs: o.URLs, TTL: time.Duration(o.TTL), Durable: o.Durable,
		Step: func(string) error {
			if c.dying {
				die()
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return c.tell(word{Told: "opened"})
}

func (c *child) acquire(ctx context.Context, o order) error {
	ctx, done := context.WithTimeout(ctx, time.Duration(o.Patience))
	defer done()
	c.dying = o.Die
	lease, err := c.client.Acquire(ctx, o.Name)
	if errors.Is(err, subject.ErrRefused) {
		return c.tell(word{Told: "refused", Error: err.Error()})
	}
	if err != nil {
		return c.tell(word{Told: "failed", Error: err.Error()})
	}
	c.lease = lease
	c.look()
	return c.tell(word{Told: "granted", Until: c.until, Fence: lease.Fence(), Token: lease.Token()})
}

// look asks the lease.
func (c *child) look() bool {
	at := monotonic()
	valid := c.lease.Valid()
	if valid {
		c.until = at
	}
	return valid
}

// stopAndWrite is stopped between its look and its deed, the worst moment there is. What it does next it does
// without another look, as it had looked just before.
func (c *child) stopAndWrite() error {
	valid := c.look()
	if err := c.tell(word{Told: "looked", Valid: valid, Until: c.until}); err != nil || !valid {
		return err
	}
	stop()
	if err := c.tell(word{Told: "wrote"}); err != nil {
		return err
	}
	valid = c.look()
	return c.tell(word{Told: "looked", Valid: valid, Until: c.until})
}

func (c *child) tell(w word) error {
	w.At = monotonic()
	return c.out.Encode(w)
}
