package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A Transport is how clients connect to the servers.
type Transport string

const (
	TCP   Transport = "tcp"
	Unix  Transport = "unix"
	Links Transport = "links" // TCP through a proxy in this process, which can add delays
)

// Servers are five enrolled redis-servers on this machine.
type Servers struct {
	*fleet.Fleet
	Transport Transport
}

const (
	patience    = 10 * time.Second // for one command of this package
	enrollTries = 20
)

// StartServers starts and enrolls the servers.
func StartServers(ctx context.Context, t Transport) (*Servers, error) {
	f, err := fleet.Start(ctx, fleet.Process, fleet.Options{Unix: t == Unix, Links: t == Links})
	if err != nil {
		return nil, err
	}
	s := &Servers{f, t}
	if err := s.enroll(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// enroll declares that no lease exists on these new servers, so that they grant at once.
func (s *Servers) enroll(ctx context.Context) error {
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(s.URLs()...)})
	if err != nil {
		return err
	}
	defer c.Close()
	for range enrollTries { // on a busy machine an answer may be late
		if err = c.Enroll(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// RoundTrip returns the median time of a PING to the last server, which is the one with faults. It uses an idle
// connection with the same transport as the clients.
func (s *Servers) RoundTrip(ctx context.Context) (time.Duration, error) {
	nodes := s.Nodes()
	conn, err := nodes[len(nodes)-1].Dial(ctx, patience)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	times := make([]time.Duration, 21)
	for i := range times {
		began := time.Now()
		if _, err := conn.Do("PING"); err != nil {
			return 0, err
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// settle is how long releases may take until they have reached all servers.
const settle = time.Second

// Sweep waits for a while until no lock is left. Then it deletes the remaining keys, and returns their number.
func (s *Servers) Sweep(ctx context.Context) (leftovers int, err error) {
	began := time.Now()
	for _, n := range s.Nodes() {
		conn, err := n.DialDirect(ctx, patience)
		if err != nil {
			return leftovers, fmt.Errorf("%s: %w", n.Name(), err)
		}
		left, err := sweep(conn, began.Add(settle))
		conn.Close()
		if err != nil {
			return leftovers, fmt.Errorf("%s: %w", n.Name(), err)
		}
		leftovers += left
	}
	return leftovers, nil
}

func sweep(conn redis.Conn, until time.Time) (int, error) {
	for {
		keys, err := redis.Strings(conn.Do("KEYS", "*"))
		if err != nil {
			return 0, err
		}
		// The library's state stays: it belongs to the servers, not to a lease.
		locks := slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "redlock:") })
		if len(locks) == 0 {
			return 0, nil
		}
		if time.Now().After(until) {
			_, err := conn.Do("DEL", redis.Args{}.AddFlat(locks)...)
			return len(locks), err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// connections returns how many connections the servers have, without those of this function.
func (s *Servers) connections(ctx context.Context) (int, error) {
	sum := 0
	for _, n := range s.Nodes() {
		conn, err := n.DialDirect(ctx, patience)
		if err != nil {
			return 0, err
		}
		list, err := redis.String(conn.Do("CLIENT", "LIST"))
		conn.Close()
		if err != nil {
			return 0, err
		}
		sum += strings.Count(list, "\n") - 1
	}
	return sum, nil
}

// Version returns the version of the first server.
func (s *Servers) Version(ctx context.Context) (string, error) {
	conn, err := s.Nodes()[0].DialDirect(ctx, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	info, err := redis.String(conn.Do("INFO", "server"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(version), nil
		}
	}
	return "", errors.New("the reply to INFO has no redis_version")
}
