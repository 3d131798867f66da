package redlock

import (
	"context"
	"errors"
	"fmt"
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
// All processes must have the same groups, with the same names of nodes, or two clients could hold one name, in two groups.
// The name of a node without a [Node.Name] is its address, as it is written, but for the case of its letters: so give each
// node a Name. The nodes hold the names of all groups with the configuration, and refuse a client whose groups differ, with
// a [*ConfigError]. They cannot tell if two lists have no node in common. Before a group comes or goes, stop all processes
// that use the locks, wait MaxTTL until what they may still hold has expired, shut down the servers of a group that goes, and
// call [Sharded.Enroll] with [ChangeConfig].
//
// While a node refuses this client's groups, and the others of its group are away and cannot outvote it, acquiring a lock
// of any other group is [ErrNoQuorum].
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
		_, endpoints, err := cfg.validate()
		if err != nil {
			return nil, fmt.Errorf("groups[%d]: %w", i, err)
		}
		var names []string
		for _, e := range endpoints {
			name := e.id()
			if other, taken := owners[name]; taken {
				return nil, invalid("groups", "%s is in groups %d and %d; a node belongs to one group", name, other, i)
			}
			owners[name] = i
			names = append(names, name)
		}
		slices.Sort(names)
		s.ids = append(s.ids, strings.Join(names, "\n"))
	}
	news := newGroupNews()
	for i, cfg := range groups {
		others := slices.Delete(slices.Clone(s.ids), i, i+1)
		slices.Sort(others)
		cfg.groups = append([]string{s.ids[i]}, others...)
		cfg.groupNews = news
		c, err := New(cfg)
		if err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("groups[%d]: %w", i, err)
		}
		s.groups = append(s.groups, c)
	}
	for _, c := range s.groups {
		c.siblings = s.groups
	}
	return s, nil
}

// checkGroup checks that the names belong to this group.
func (c *Config) checkGroup(names []string) error {
	if len(c.groups) < 2 {
		return nil
	}
	for _, name := range names {
		if group := groupOf(c.groups, name); group != 0 {
			return invalid("name", "%q belongs to another group of nodes than this one: acquire it on %s. The names of one lock "+
				"must belong to one group", name, groupText(c.groups[group]))
		}
	}
	return nil
}

// Group returns the client of the group that the name belongs to. Use it for [Client.Inspect] and [Client.ForceRelease]
// of the name, and for readers and semaphores. To acquire a name of another group there is [ErrInvalid]. Do not close it.
func (s *Sharded) Group(name string) *Client { return s.groups[groupOf(s.ids, name)] }

// Groups are the clients of the groups, in the order in which [NewSharded] got them: to watch each, or to ask each for its
// [Client.Stats]. Do not close them.
// The slice is the caller's.
func (s *Sharded) Groups() []*Client { return slices.Clone(s.groups) }

// groupOf returns the group to which the name belongs.
func groupOf(ids []string, name string) int {
	best, highest := 0, uint64(0)
	for i, id := range ids {
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
func (s *Sharded) Mutex(name string, more ...string) Lock { return s.Group(name).Mutex(name, more...) }

// Enroll is [Client.Enroll] of every group at once. The error joins those of the groups. Enroll new servers so: the command
// redlock enroll knows no groups, and what it enrolled refuses clients that do, until [ChangeConfig].
//
// With [OnlyNew] all groups are asked first, and none is enrolled unless the nodes of all look new: others that vote show that
// the locks are in use. So a call that enrolled only some groups, because nodes went away just then, cannot be repeated. Then
// wait for the quarantine of the rest, or, if no client can hold a lock, call Enroll without OnlyNew.
func (s *Sharded) Enroll(ctx context.Context, options ...EnrollOption) error {
	return enroll(ctx, s.groups, options)
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
func (s *Sharded) Close() error {
	return each(s.groups, func(_ int, c *Client) error { return c.Close() })
}

// each does something with all groups at once, and joins their errors.
func each(groups []*Client, do func(int, *Client) error) error {
	if len(groups) == 1 {
		return do(0, groups[0])
	}
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, c := range groups {
		wg.Go(func() { errs[i] = do(i, c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
