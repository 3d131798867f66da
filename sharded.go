package redlock

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
)

// Sharded spreads locks over several groups of nodes, each a quorum of its own, so that capacity grows with
// the groups. A name always belongs to one group: that whose hash with the name is highest (rendezvous
// hashing), so that adding a group moves only the names which then belong to it. It is safe for concurrent
// use.
//
// All processes must be given the same groups. While some have a group that others have not, two may hold one
// name, in two groups: stop all users of the locks, or wait out MaxTTL, before a group comes or goes.
type Sharded struct {
	groups []*Client
	ids    []string // of the groups: what their nodes are called, in order
}

// NewSharded connects to each group as [New] does. No two groups may have a node's name in common.
func NewSharded(groups ...Config) (*Sharded, error) {
	if len(groups) == 0 {
		return nil, invalid("groups", "there are none; give the Config of each group of nodes")
	}
	s := &Sharded{}
	owners := map[string]int{}
	for i, cfg := range groups {
		c, err := New(cfg)
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.groups = append(s.groups, c)
		var names []string
		for _, n := range c.nodes {
			name := n.endpoint.name
			if other, taken := owners[name]; taken {
				_ = s.Close()
				return nil, invalid("groups", "%s is in groups %d and %d; a node belongs to one group", name, other, i)
			}
			owners[name] = i
			names = append(names, name)
		}
		slices.Sort(names)
		s.ids = append(s.ids, strings.Join(names, "\n"))
	}
	return s, nil
}

// Group is the client of the group that the name belongs to; ask it to Inspect or to ForceRelease the name.
func (s *Sharded) Group(name string) *Client { return s.groups[s.group(name)] }

func (s *Sharded) group(name string) int {
	best, highest := 0, uint64(0)
	for i, id := range s.ids {
		h := fnv.New64a()
		_, _ = h.Write([]byte(id))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(name))
		if weight := mix(h.Sum64()); i == 0 || weight > highest {
			best, highest = i, weight
		}
	}
	return best
}

// mix spreads what FNV leaves close together: names that differ in their last byte alone. It is the finalizer
// of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Mutex is [Client.Mutex] in the group of the name. Several names must belong to one group; else acquiring the
// lock is [ErrInvalid].
func (s *Sharded) Mutex(name string, more ...string) Lock {
	group := s.group(name)
	lock := s.groups[group].Mutex(name, more...)
	for _, other := range more {
		if s.group(other) != group && lock.spec.err == nil {
			lock.spec.err = invalid("name", "%q and %q belong to different groups, which cannot be locked in one round", name, other)
		}
	}
	return lock
}

// Enroll is [Client.Enroll] of every group.
func (s *Sharded) Enroll(ctx context.Context, options ...EnrollOption) error {
	return s.each(func(c *Client) error { return c.Enroll(ctx, options...) })
}

// Status is [Client.Status] of every group, in order.
func (s *Sharded) Status(ctx context.Context) [][]NodeStatus {
	status := make([][]NodeStatus, len(s.groups))
	var wg sync.WaitGroup
	for i, c := range s.groups {
		wg.Go(func() { status[i] = c.Status(ctx) })
	}
	wg.Wait()
	return status
}

// Close is [Client.Close] of every group.
func (s *Sharded) Close() error { return s.each((*Client).Close) }

func (s *Sharded) each(do func(*Client) error) error {
	errs := make([]error, len(s.groups))
	var wg sync.WaitGroup
	for i, c := range s.groups {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
