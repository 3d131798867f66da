package subject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/quorumlock/redlock/chaos/history"
)

// What the harness and the program of a Command say to each other. command.schema.json describes the same.

// A request is a line for the program.
type request struct {
	ID            uint64 `json:"id"`
	Op            string `json:"op"`                   // acquire, valid, release
	Name          string `json:"name,omitempty"`       // acquire
	TimeoutMillis int64  `json:"timeout_ms,omitempty"` // acquire
	Lease         string `json:"lease,omitempty"`      // valid, release
}

// A reply is a line of the program that answers a request: with OK, Refused or Error.
type reply struct {
	ID      uint64 `json:"id"`
	OK      *bool  `json:"ok"`
	Refused bool   `json:"refused"`
	Error   string `json:"error"`
	Lease   string `json:"lease"` // acquire
	Fence   uint64 `json:"fence"`
	Token   string `json:"token"`

	held *commandLease // granted, and somebody waits
}

// granted reports whether the reply to an acquire has the lock.
func (r reply) granted() bool { return r.OK != nil && *r.OK }

// A message is a line of the program: a reply, or the lease that was lost.
type message struct {
	reply
	Lost string `json:"lost"`
}

// maxMessage is the longest line of a program that is read, in bytes.
const maxMessage = 1 << 16

func parseMessage(line []byte) (m message, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, wrongLine(line, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, wrongLine(line, errors.New("something follows the object"))
	}
	if m.Lost != "" && m != (message{Lost: m.Lost}) {
		return m, wrongLine(line, errors.New("lost comes alone"))
	}
	return m, nil
}

// answers returns an error if the reply is none to such a request.
func (r reply) answers(op string) error {
	says := 0
	for _, said := range []bool{r.OK != nil, r.Refused, r.Error != ""} {
		if said {
			says++
		}
	}
	switch {
	case says != 1:
		return errors.New("it needs one of ok, refused: true and error")
	case op != "acquire" && r.Refused:
		return fmt.Errorf("only an acquire is refused; answer %s with ok or error", op)
	case op == "acquire" && r.OK != nil && !*r.OK:
		return errors.New("an acquire is answered with ok: true, refused: true or error")
	case op == "acquire" && r.OK != nil && r.Lease == "":
		return errors.New("the lock was granted without a lease")
	}
	return nil
}

// wrongLine says what is wrong with a line of the program, and what belongs there.
func wrongLine(line []byte, err error) error {
	return fmt.Errorf("the command wrote the line %.100q: %w; its standard output is for replies, standard error for the rest", line, err)
}

// untold lists what a library does not say of a lease.
func untold(validity, fence bool) (what []string) {
	if validity {
		what = append(what, history.Validity)
	}
	if fence {
		what = append(what, history.FencingTokens)
	}
	return what
}
