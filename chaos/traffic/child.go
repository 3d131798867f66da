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

// A client that a scenario stops or kills must be a separate process. It gets requests and sends replies, as lines of
// JSON. Its times are those of the machine's monotonic clock, which both processes can read.

// A request is what a child is to do.
type request struct {
	Do string `json:"do"` // open, acquire, write, release

	Subject string   `json:"subject,omitempty"` // open
	URLs    []string `json:"urls,omitempty"`
	TTL     int64    `json:"ttl,omitempty"` // nanoseconds
	Durable bool     `json:"durable,omitempty"`
	Client  int      `json:"client,omitempty"`

	Name     string `json:"name,omitempty"`     // acquire
	Patience int64  `json:"patience,omitempty"` // nanoseconds
	Reader   bool   `json:"reader,omitempty"`   // see subject.Want
	Permits  int    `json:"permits,omitempty"`  //
	Die      bool   `json:"die,omitempty"`      // die in the first gap between two commands, or else when the lock is granted
}

// A reply is what a child did or saw.
type reply struct {
	Told  string `json:"told"`            // opened, granted, refused, failed, looked, wrote, released
	At    int64  `json:"at,omitempty"`    // when, by the machine's monotonic clock
	Until int64  `json:"until,omitempty"` // when it last saw its lease valid
	Valid bool   `json:"valid,omitempty"` // looked: whether the lease was valid
	Fence uint64 `json:"fence,omitempty"`
	Token string `json:"token,omitempty"`
	Error string `json:"error,omitempty"`

	Untold []string `json:"untold,omitempty"` // see subject.Untold
}

// ServeChild is the main loop of a child process: it executes the requests of in until in ends. find returns the
// subject with a name. Its error, and that of Open, is told to the process that asked, and returned.
func ServeChild(ctx context.Context, in io.Reader, out io.Writer, find func(name string) (subject.Subject, error)) error {
	c := &child{find: find, in: json.NewDecoder(in), out: json.NewEncoder(out)}
	defer c.close()
	for {
		var r request
		if err := c.in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if err := c.do(ctx, r); err != nil {
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
		_ = c.client.Close() // nobody reads the error any more
	}
}

func (c *child) do(ctx context.Context, r request) error {
	switch {
	case r.Do == "open":
		return c.open(ctx, r)
	case c.client == nil:
		return errors.New("the client is not open")
	case r.Do == "acquire":
		return c.acquire(ctx, r)
	case c.lease == nil:
		return errors.New("the client has no lease")
	case r.Do == "write":
		return c.stopAndWrite()
	case r.Do == "release":
		ctx, done := context.WithTimeout(ctx, time.Duration(r.Patience))
		defer done()
		c.look()
		w := reply{Told: "released", Until: c.until, Untold: subject.Untold(c.lease)}
		if err := c.lease.Release(ctx); err != nil {
			w.Error = err.Error()
		}
		return c.send(w)
	}
	return fmt.Errorf("unknown request %q", r.Do)
}

func (c *child) open(ctx context.Context, r request) error {
	s, err := c.find(r.Subject)
	if err != nil {
		return c.fail(err)
	}
	c.client, err = s.Open(ctx, subject.Options{
		Client: r.Client, URLs: r.URLs, TTL: time.Duration(r.TTL), Durable: r.Durable, Child: true,
		Step: func(string) error {
			if c.dying {
				die()
			}
			return nil
		},
	})
	if err != nil {
		return c.fail(err)
	}
	return c.send(reply{Told: "opened"})
}

// fail tells the parent why the lock cannot be opened. The child ends with the same error.
func (c *child) fail(err error) error {
	return errors.Join(err, c.send(reply{Told: "failed", Error: err.Error()}))
}

func (c *child) acquire(ctx context.Context, r request) error {
	ctx, done := context.WithTimeout(ctx, time.Duration(r.Patience))
	defer done()
	c.dying = r.Die
	lease, err := subject.Acquire(ctx, c.client, r.Name, subject.Want{Reader: r.Reader, Permits: r.Permits})
	if errors.Is(err, subject.ErrRefused) {
		return c.send(reply{Told: "refused", Error: err.Error()})
	}
	if err != nil {
		return c.send(reply{Told: "failed", Error: err.Error()})
	}
	c.lease, c.until = lease, 0
	c.look()
	return c.send(reply{Told: "granted", Until: c.until, Fence: lease.Fence(), Token: lease.Token()})
}

// look asks whether the lease is valid.
func (c *child) look() bool {
	at := monotonic()
	valid := c.lease.Valid()
	if valid {
		c.until = at
	}
	return valid
}

// stopAndWrite is stopped between its look at the lease and its write, which is the worst moment. Then it writes
// without another look.
func (c *child) stopAndWrite() error {
	valid := c.look()
	if err := c.send(reply{Told: "looked", Valid: valid, Until: c.until}); err != nil || !valid {
		return err
	}
	stop()
	if err := c.send(reply{Told: "wrote"}); err != nil {
		return err
	}
	valid = c.look()
	return c.send(reply{Told: "looked", Valid: valid, Until: c.until})
}

func (c *child) send(w reply) error {
	w.At = monotonic()
	return c.out.Encode(w)
}
