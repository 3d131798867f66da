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
	"slices"
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
// sends exactly the bytes of the current library, except the ballots, which must grow. On a busy machine a server may be
// late, and then the library also asks others, or leaves that one out for a while. That is not what acquires cost, so
// these names are recorded again.
func record(ctx context.Context, c Config) (lanes [][]slot, highest uint64, err error) {
	var names []int
	for range maxTries {
		if len(names) == 0 {
			lanes = make([][]slot, len(c.URLs))
			for i := range c.Window {
				names = append(names, i)
			}
		}
		leases, again, err := recordOnce(ctx, c, names, lanes)
		if err != nil {
			return nil, 0, err
		}
		for _, lease := range leases {
			highest = max(highest, lease.Fence())
		}
		names = again
		leftOut := slices.ContainsFunc(lanes, func(slots []slot) bool { return len(slots) == 0 })
		if len(names) == 0 && !(leftOut && c.Window >= 4*len(c.URLs)) {
			return lanes, highest, nil
		}
	}
	return nil, 0, errors.New("the names were never sent to a bare quorum of all the servers: they are too busy")
}

// maxTries is how often names are recorded. On an idle machine once is nearly always enough.
const maxTries = 30

// recordOnce adds to the lanes the slots of those of the names that were sent to a bare quorum. It returns the others.
func recordOnce(ctx context.Context, c Config, names []int, lanes [][]slot) (leases []*redlock.Lease, again []int, err error) {
	tapes := make([]*tape, len(c.URLs))
	cfg := redlock.Config{NoFence: !c.Fence, NodeTimeout: 2 * time.Second} // a busy machine answers late
	for i, server := range c.URLs {
		network, address, err := split(server)
		if err != nil {
			return nil, nil, err
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
	if leases, err = lockEach(ctx, cfg, c, names); err != nil {
		return nil, nil, err
	}
	found := make([]map[int]slot, len(tapes)) // by server, and by the index of the lease
	sent := make([]int, len(leases))
	for i, t := range tapes {
		if found[i], err = t.slots(leases); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.URLs[i], err)
		}
		for lease := range found[i] {
			sent[lease]++
		}
	}
	for i, name := range names {
		if sent[i] != c.Quorum() {
			again = append(again, name)
			continue
		}
		for server := range lanes {
			if s, ok := found[server][i]; ok {
				lanes[server] = append(lanes[server], s)
			}
		}
	}
	return leases, again, nil
}

// lockEach returns the leases. All have been released on every server, because Close waits for that.
func lockEach(ctx context.Context, cfg redlock.Config, c Config, names []int) ([]*redlock.Lease, error) {
	client, err := redlock.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(client.Enroll(ctx, redlock.ChangeConfig()), awaitVoters(ctx, client)); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	leases := make([]*redlock.Lease, len(names))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards errs
	var errs []error
	const atOnce = 16
	for g := range atOnce {
		wg.Go(func() {
			for i := g; i < len(names); i += atOnce {
				lease, err := client.Mutex(c.Name(names[i])).Acquire(ctx)
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

// slots finds the acquire and release of the leases that were sent to this server: the first and the last command with
// its token. The acquire takes its light form, as the library sends it under load to servers that are near.
func (t *tape) slots(leases []*redlock.Lease) (slots map[int]slot, err error) {
	slots = map[int]slot{}
	commands, err := parse(t.wrote.Bytes())
	if err != nil {
		return nil, err
	}
	byToken := map[string][]int{}
	for _, lease := range leases {
		byToken[lease.Token()] = nil
	}
	for i, r := range commands {
		for _, arg := range r.args {
			if calls, isToken := byToken[string(arg.text)]; isToken {
				byToken[string(arg.text)] = append(calls, i)
			}
		}
	}
	for i, lease := range leases {
		calls := byToken[lease.Token()]
		if len(calls) == 0 {
			continue
		}
		if len(calls) < 2 {
			return nil, errors.New("a lease was acquired, but not released")
		}
		s, err := newSlot(commands[calls[0]:])
		if err != nil {
			return nil, err
		}
		s.release = commands[calls[len(calls)-1]].raw
		if s.ballotAt, err = ballotAt(s.acquire, lease.Fence()); err != nil {
			return nil, err
		}
		slots[i] = s
	}
	return slots, nil
}

// newSlot takes the acquire with which the commands begin. It is acquire.lua, or SET and perhaps ZADD.
func newSlot(commands []request) (slot, error) {
	arg := func(r request, i int) string { return string(r.args[i].text) }
	first := commands[0]
	var key, token, ttl, ballot, fence string
	switch name := arg(first, 0); {
	case name == "EVALSHA" && len(first.args) >= 10:
		key, token, ttl, ballot = arg(first, 3), arg(first, 7), arg(first, 8), arg(first, 9)
		if len(first.args) > 10 {
			fence = arg(first, 10)
		}
	case name == "SET" && len(first.args) == 6:
		key, token, ttl = arg(first, 1), arg(first, 2), arg(first, 5)
		if next := commands[1]; arg(next, 0) == "ZADD" {
			ballot, fence = arg(next, 4), arg(next, 5)
		}
	default:
		return slot{}, fmt.Errorf("%q is no acquire", first.raw)
	}
	raw := command("SET", key, token, "NX", "PX", ttl)
	if fence != "" {
		raw = append(raw, command("ZADD", "redlock:fence", "GT", "CH", ballot, fence)...)
	}
	return slot{acquire: raw}, nil
}

// command is a command as it is written.
func command(args ...string) []byte {
	raw := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		raw = fmt.Appendf(raw, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return raw
}

// ballotAt is where the acquire has the ballot; 0: there is none.
func ballotAt(acquire []byte, ballot uint64) (int, error) {
	if ballot == 0 {
		return 0, nil
	}
	text := strconv.FormatUint(ballot, 10)
	if at := bytes.LastIndex(acquire, []byte("\r\n"+text+"\r\n")); at > 0 {
		return at + 2, nil
	}
	return 0, fmt.Errorf("the ballot %s is not among the arguments of the acquire", text)
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
