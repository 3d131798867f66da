package redlock

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
)

// Sharded spreads locks over several groups of nodes. Each group has a quorum of its own, so that capacity grows with
// the number of groups. A name belongs to one group: the one whose hash with the name is highest (rendezvous hashing).
// So a new group takes over only the names that belong to it from then on. A Sharded is safe for concurrent use. Get
// one from [NewSharded].
//
// All processes must have the same groups, with the same names of nodes. While some have a group that others do not
// have, two clients may hold one name, in two groups. So before a group comes or goes, stop all processes that use the
// locks, and wait MaxTTL until what they may still hold has expired.
type Sharded struct {
	groups []*Client
	ids    []string // of the groups: the sorted names of their nodes
}

// NewSharded connects to each group as [New] does. A node's name may be in one group only. Errors are [ErrInvalid].
// Call [Sharded.Close] when the locks are no longer needed.
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

// Group returns the client of the group that the name belongs to. Use it for [Client.Inspect] and [Client.ForceRelease]
// of the name, and for readers and semaphores. Do not close it.
func (s *Sharded) Group(name string) *Client { return s.groups[s.group(name)] }

// Groups are the clients of the groups, in the order in which [NewSharded] got them: to watch each, or to ask each for its
// [Client.Stats]. Do not close them.
// The slice is the caller's.
func (s *Sharded) Groups() []*Client { return slices.Clone(s.groups) }

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

// Mutex is [Client.Mutex] in the group of the name. If there are several names, all must belong to one group; otherwise
// acquiring the lock is [ErrInvalid].
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

// Enroll is [Client.Enroll] of every group at once. The error joins those of the groups.
func (s *Sharded) Enroll(ctx context.Context, options ...EnrollOption) error {
	return s.each(func(c *Client) error { return c.Enroll(ctx, options...) })
}

// Status is [Client.Status] of every group at once, in the order in which the groups were given.
func (s *Sharded) Status(ctx context.Context) [][]NodeStatus {
	status := make([][]NodeStatus, len(s.groups))
	var wg sync.WaitGroup
	for i, c := range s.groups {
		wg.Go(func() { status[i] = c.Status(ctx) })
	}
	wg.Wait()
	return status
}

// Close is [Client.Close] of every group at once.
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
