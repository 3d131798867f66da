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

// A Transport is how the clients reach the servers.
type Transport string

const (
	TCP   Transport = "tcp"
	Unix  Transport = "unix"
	Links Transport = "links" // TCP through a proxy in this process, which can delay
)

// Servers are five redis-servers of this machine, enrolled.
type Servers struct {
	*fleet.Fleet
	Transport Transport
}

const (
	patience    = 10 * time.Second // with one command of ours
	enrollTries = 20
)

// StartServers starts and enrolls them.
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

// enroll says that no lease is out on these new servers, so that they grant at once.
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

// RoundTrip is the median time of a PING on an idle connection of the kind that the clients have, to the last
// server: the one that faults are for.
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

// settle is how long releases that were sent may take to arrive everywhere.
const settle = time.Second

// Sweep waits until no lock is left, deletes what is left after a while, and says how many keys that were.
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
		// The library's own state stays: it belongs to the servers, not to any lease.
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

// connections is how many the servers have, less the one that asks.
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

// Version is that of the first server.
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
	return "", errors.New("INFO tells no redis_version")
}
