package limit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock"
)

// A tape is everything that a client wrote to one server.
type tape struct {
	mu    sync.Mutex // guards wrote
	wrote bytes.Buffer
}

// A taped connection also writes to the tape.
type taped struct {
	net.Conn
	tape *tape
}

func (t taped) Write(p []byte) (int, error) {
	t.tape.mu.Lock()
	t.tape.wrote.Write(p)
	t.tape.mu.Unlock()
	return t.Conn.Write(p)
}

// record lets the library lock and unlock each name once, and returns what it wrote to each server. So the loop always
// sends exactly the bytes of the current library, except the ballots, which must grow.
func record(ctx context.Context, c Config) (lanes [][]slot, highest uint64, err error) {
	tapes := make([]*tape, len(c.URLs))
	cfg := redlock.Config{NoFence: !c.Fence}
	for i, server := range c.URLs {
		network, address, err := split(server)
		if err != nil {
			return nil, 0, err
		}
		t := &tape{}
		tapes[i] = t
		cfg.Nodes = append(cfg.Nodes, redlock.Node{Name: server, Dial: func(ctx context.Context) (redis.Conn, error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return redis.NewConn(taped{conn, t}, 0, time.Second), nil
		}})
	}
	leases, err := lockEach(ctx, cfg, c)
	if err != nil {
		return nil, 0, err
	}
	for i, t := range tapes {
		slots, err := t.slots(leases)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", c.URLs[i], err)
		}
		lanes = append(lanes, slots)
	}
	for _, lease := range leases {
		highest = max(highest, lease.Fence())
	}
	return lanes, highest, nil
}

// lockEach returns the leases. All have been released on every server, because Close waits for that.
func lockEach(ctx context.Context, cfg redlock.Config, c Config) ([]*redlock.Lease, error) {
	client, err := redlock.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(client.Enroll(ctx, redlock.ChangeConfig()), awaitVoters(ctx, client)); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	leases := make([]*redlock.Lease, c.Window)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards errs
	var errs []error
	const atOnce = 16
	for g := range atOnce {
		wg.Go(func() {
			for i := g; i < c.Window; i += atOnce {
				lease, err := client.Mutex(c.Name(i)).Acquire(ctx)
				if err == nil {
					leases[i] = lease
					err = lease.Release(ctx)
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return leases, errors.Join(append(errs, client.Close())...)
}

// awaitVoters waits until every server votes. Before that, an acquire would not be sent to servers that are connecting.
func awaitVoters(ctx context.Context, client *redlock.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		var errs []error
		for _, node := range client.Status(ctx) {
			if node.Err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", node.Name, node.Err))
			}
		}
		if len(errs) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// slots finds the acquire and release of each lease: the two scripts that were called with its token.
func (t *tape) slots(leases []*redlock.Lease) ([]slot, error) {
	commands, err := parse(t.wrote.Bytes())
	if err != nil {
		return nil, err
	}
	byToken := map[string][]request{}
	for _, r := range commands {
		if string(r.args[0].text) != "EVALSHA" {
			continue
		}
		for _, arg := range r.args {
			if len(arg.text) == 32 { // not a hash, which has 40
				byToken[string(arg.text)] = append(byToken[string(arg.text)], r)
			}
		}
	}
	slots := make([]slot, len(leases))
	for i, lease := range leases {
		calls := byToken[lease.Token()]
		if len(calls) != 2 {
			return nil, fmt.Errorf("%d scripts were called for one lease, instead of one to acquire and one to release", len(calls))
		}
		slots[i] = slot{acquire: calls[0].raw, release: calls[1].raw}
		if lease.Fence() == 0 {
			continue
		}
		ballot := strconv.FormatUint(lease.Fence(), 10)
		for _, arg := range calls[0].args {
			if string(arg.text) == ballot {
				slots[i].ballotAt = arg.at
			}
		}
		if slots[i].ballotAt == 0 {
			return nil, fmt.Errorf("the ballot %s is not among the arguments of the acquire", ballot)
		}
	}
	return slots, nil
}

// A request is one command as it was written.
type request struct {
	raw  []byte
	args []argument
}

type argument struct {
	text []byte
	at   int // in raw
}

// parse splits a stream of RESP commands. It leaves out an incomplete command at the end.
func parse(stream []byte) (requests []request, err error) {
	r := bufio.NewReader(bytes.NewReader(stream))
	for at := 0; ; {
		n, used, err := header(r, '*')
		if errors.Is(err, io.EOF) {
			return requests, nil
		}
		if err != nil {
			return nil, err
		}
		q := request{raw: stream[at:]}
		for range n {
			length, head, err := header(r, '$')
			if err == nil && used+head+length+2 <= len(q.raw) {
				used += head
				q.args = append(q.args, argument{q.raw[used : used+length], used})
				used += length + 2
				_, err = r.Discard(length + 2)
			} else if err == nil {
				err = io.EOF
			}
			if errors.Is(err, io.EOF) {
				return requests, nil
			}
			if err != nil {
				return nil, err
			}
		}
		q.raw = bytes.Clone(q.raw[:used])
		at += used
		requests = append(requests, q)
	}
}

// header reads a line with a count, and returns the count and the length of the line.
func header(r *bufio.Reader, kind byte) (count, length int, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 4 || line[0] != kind {
		return 0, 0, fmt.Errorf("expected %c, got %q", kind, line)
	}
	count, err = strconv.Atoi(line[1 : len(line)-2])
	return count, len(line), err
}

func split(server string) (network, address string, err error) {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return "", "", err
	case u.Scheme == "unix":
		return "unix", u.Path, nil
	default:
		return "tcp", u.Host, nil
	}
}
