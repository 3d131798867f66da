package redlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// Readers, writers and permits in the simulation: what workers do with them, and what must hold.

// The names of locks that several may share, and the invariants for them.
const (
	readWrite = "rw"
	permitted = "permits"

	readersOrWriter = "readers or one writer"
	tooMany         = "no more leases than permits"
)

var sharedNames = []string{readWrite, permitted}

// permits is how many permits the semaphore of a world has.
const permits = 2

// A role is how a call wants its names.
type role int

const (
	exclusive role = iota
	reading
	permit
)

// drawShared draws whether the world has such locks, and whether its writers are fair. It has a source of its own, so that
// other worlds stay as they are.
func drawShared(seed uint64, shows string) (shares, fairWriters bool) {
	percent := 25
	if isNamed(sharing) || shows == sharing {
		percent = 85
	}
	r := rand.New(rand.NewPCG(seed, 11))
	return r.IntN(100) < percent, r.IntN(2) == 0
}

// sharedLock describes a lock that several may have.
func (k *worker) sharedLock(client *redlock.Client, name string) (redlock.Lock, role) {
	switch {
	case name == permitted:
		return client.Semaphore(name, permits), permit
	case k.chance(0.6):
		return client.RWMutex(name).Reader(), reading
	default:
		return k.world.writer(client, name), exclusive
	}
}

// writer is the lock of a writer. In some worlds all writers are fair.
func (w *world) writer(client *redlock.Client, name string) redlock.Lock {
	if w.has.fairWriters {
		return client.RWMutex(name).Writer().Fair()
	}
	return client.RWMutex(name).Writer()
}

// excludes reports whether two leases of one name may not be valid at the same time.
func (a *call) excludes(b *call) bool { return a.role != b.role || a.role == exclusive }

// lookShared compares the leases of each name: of shared names, those who rely on them; valid is the leases that are
// valid, alive those whose context goes on. o.mu is held.
func (o *oracle) lookShared() {
	for _, name := range sharedNames {
		var valid, alive []*redlock.Lease
		for l, a := range o.leases {
			if a.forced || !slices.Contains(a.names, name) {
				continue
			}
			if l.Valid() {
				valid = append(valid, l)
			}
			if a.lease != nil && a.lease.Err() == nil {
				alive = append(alive, l)
			}
		}
		for i, l := range valid {
			for _, other := range valid[i+1:] {
				if a, b := o.leases[l], o.leases[other]; a.excludes(b) {
					invariant := twoHolders
					if a.role != b.role {
						invariant = readersOrWriter
					}
					o.violate(invariant, "clients %d and %d both hold %s, as %d and %d", a.worker.id+1, b.worker.id+1, name, a.role, b.role)
				}
			}
			for _, other := range alive {
				if a, b := o.leases[l], o.leases[other]; l != other && !other.Valid() && a.excludes(b) {
					o.violate(outlived, "client %d has %s, and the context of client %d's lease has not ended", a.worker.id+1, name, b.worker.id+1)
				}
			}
		}
		if name == permitted && len(valid) > permits {
			o.violate(tooMany, "%d leases of %s are valid, of %d permits", len(valid), name, permits)
		}
	}
}

// turns records that a writer goes on with this lease: it has become a reader, or could not.
func (o *oracle) turns(a *call, l *redlock.Lease, as role) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a.role = as
	a.lease = l.Context()
	o.leases[l] = a
	o.lookLocked()
}

// share works under a lease of a lock that several may have. A writer may become a reader. It returns the lease to
// release.
func (k *worker) share(a *call, l *redlock.Lease, how manner) *redlock.Lease {
	w := k.world
	bare := w.bare[a.names[0]]
	pause := func(most time.Duration) {
		k.sleep(k.upTo(most))
		w.oracle.look()
	}
	most := w.ttl / 20
	if how == asUsual {
		most = w.ttl * 2 / 3
	}
	before, _ := bare.read(l)
	pause(most)
	if a.role == exclusive {
		if !w.oracle.writes(a, l) {
			return l
		}
		before++
		bare.write(l, before)
		if k.chance(0.6) {
			return l
		}
		w.oracle.ends(l)
		ctx, cancel := context.WithTimeout(context.Background(), w.ttl/10)
		reader, err := l.Downgrade(ctx)
		cancel()
		w.trace("client %d reads %s from now on: %v", k.id+1, a.names, err)
		if err != nil {
			w.oracle.turns(a, l, exclusive)
			return l
		}
		w.oracle.turns(a, reader, reading)
		l = reader
		pause(most)
	}
	if how == asUsual && k.chance(0.2) {
		ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
		_ = l.Extend(ctx)
		cancel()
		pause(most)
	}
	if a.role == reading {
		if now, _ := bare.read(l); now != before && l.Valid() && !w.oracle.isForced(l) {
			w.oracle.report(readersOrWriter, "client %d read %s as %d, and then as %d under the same lease", k.id+1, a.names, before, now)
		}
	}
	return l
}

// crowd has readers and writers want one lock all the time, and more clients than there are permits want those. Each of
// them gets in (S2, S3), and none is overtaken without bound.
func (w *world) crowd() {
	for _, name := range sharedNames {
		var readers, others sync.WaitGroup
		stop := make(chan struct{})
		for _, c := range w.clients {
			if c.id+1 == w.has.differs {
				continue
			}
			for i := range 2 {
				k := &worker{caller: c, random: rand.New(rand.NewPCG(w.seed, uint64(5000+10*c.id+i)))}
				readers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							k.visit(name, reading, 5*w.slow())
						}
					}
				})
			}
			k := &worker{caller: c, random: rand.New(rand.NewPCG(w.seed, uint64(6000+c.id)))}
			others.Go(func() {
				for range 1 + c.id%2 {
					k.visit(name, exclusive, w.slow())
				}
			})
		}
		others.Wait()
		close(stop)
		readers.Wait()
	}
}

// visit acquires one of the shared locks, stays for about so long, and releases it.
func (k *worker) visit(name string, how role, stay time.Duration) {
	w := k.world
	client := k.current()
	lock := client.Semaphore(name, permits)
	switch {
	case name == permitted:
		how = permit
	case how == reading:
		lock = client.RWMutex(name).Reader()
	default:
		lock = w.writer(client, name)
	}
	a := w.oracle.begins(k, client, []string{name}, false)
	a.role = how
	ctx, cancel := context.WithTimeout(context.Background(), 40*w.ttl+10*time.Second)
	defer cancel()
	l, err := lock.Acquire(ctx)
	if err != nil {
		w.oracle.fails(a, err)
		w.oracle.report(stuck, "client %d: %s, %d: %v", k.id+1, name, how, err)
		return
	}
	w.oracle.grants(a, l, true)
	k.sleep(stay/2 + k.upTo(stay))
	valid := w.oracle.ends(l)
	w.oracle.released(a, valid, l.Release(ctx))
}

// sharers returns the owners of entries of this key that have not ended. s.mu is held.
func (s *server) sharers(name string) (tokens []string) {
	if !s.redis.Exists(name) || s.redis.Type(name) != "zset" {
		return nil
	}
	entries, _ := s.redis.SortedSet(name)
	for entry, ends := range entries {
		token := entry[strings.LastIndexByte(entry, ' ')+1:]
		if int64(ends) > s.nowLocked().UnixMicro() && !strings.HasPrefix(token, "next:") {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
