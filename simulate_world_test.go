package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock"
)

// A world is one simulated run: servers, clients, their links, and the oracle that watches. It lives in a
// testing/synctest bubble, so that its time is virtual.
type world struct {
	seed    uint64
	random  *rand.Rand // of the schedule alone
	began   time.Time
	ttl     time.Duration
	names   []string
	servers []*server
	clients []*caller
	fenced  map[string]*register
	bare    map[string]*register // without fences
	oracle  *oracle
	change  []func(*redlock.Config)
	unaware bool // the clients' clocks do not count suspend

	resting chan struct{} // closed when the faults are over and everything is healed
	trace   func(format string, args ...any)
	events  atomic.Int64
	clock   int // the server whose clock may step; one, as the promise has it
}

const maxStep = 60 * time.Second

// A caller is one process that uses the library: a client, its clock, and those who work with it.
type caller struct {
	world  *world
	id     int
	client *redlock.Client
	origin time.Duration // of its clock, and of what it would call the time of day
	rate   float64
	random *rand.Rand // of its workers
	mu     sync.Mutex // guards the rest, and random
	asleep time.Duration
	since  time.Time // when it was suspended; zero: it is not
	wake   chan struct{}
}

// Now is the client's clock.
func (c *caller) Now() redlock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := time.Since(c.world.began)
	if c.world.unaware {
		elapsed -= c.asleep
		if !c.since.IsZero() {
			elapsed -= time.Since(c.since)
		}
	}
	return redlock.Instant(c.origin + time.Duration(float64(elapsed)*c.rate))
}

func (c *caller) chance(p float64) bool { return c.float() < p }

func (c *caller) float() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.Float64()
}

func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(c.float() * float64(d)) }

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{seed: seed, random: r, began: time.Now(), names: []string{"a", "b"}, resting: make(chan struct{}),
		fenced: map[string]*register{}, bare: map[string]*register{}, trace: func(string, ...any) {}}
	w.ttl = []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second}[r.IntN(3)]
	w.oracle = newOracle(w)
	for _, name := range w.names {
		w.fenced[name] = &register{oracle: w.oracle, name: name + " (fenced)", fenced: true, passed: map[*redlock.Lease]bool{}}
		w.bare[name] = &register{oracle: w.oracle, name: name, passed: map[*redlock.Lease]bool{}}
	}
	return w
}

// open starts the servers and the clients.
func (w *world) open() error {
	nodes, clients := 3, 2
	if w.random.IntN(4) == 0 {
		nodes = 5
	}
	if w.random.IntN(4) == 0 {
		clients = 3
	}
	w.clock = w.random.IntN(nodes)
	spread := min(100*time.Millisecond, w.ttl/20) / 4 // of clocks in good order
	for i := range nodes {
		s := &server{world: w, index: i, revived: map[string]bool{}, rate: 1 + (w.random.Float64()-0.5)/5000, ahead: time.Duration(w.random.Int64N(int64(spread)))}
		for c := range clients {
			s.links = append(s.links, newLink(w.seed*1000+uint64(i*10+c), min(w.ttl/25, 100*time.Millisecond)))
		}
		s.start(false)
		w.servers = append(w.servers, s)
	}
	for id := range clients {
		c := &caller{world: w, id: id, rate: 1 + (w.random.Float64()-0.5)/100, random: rand.New(rand.NewPCG(w.seed, uint64(id+2))),
			origin: time.Duration(w.began.UnixNano() + w.random.Int64N(int64(2*time.Hour)) - int64(time.Hour))}
		w.clients = append(w.clients, c)
		cfg := redlock.Config{TTL: w.ttl, MaxTTL: w.ttl, MaxClockSkew: w.ttl / 10, Clock: c}
		for i, s := range w.servers {
			cfg.Nodes = append(cfg.Nodes, redlock.Node{Name: fmt.Sprintf("node-%d", i+1), Dial: s.dialer(id)})
		}
		cfg.Hooks.Extended = func(redlock.LeaseInfo, time.Duration, time.Duration) { w.oracle.look() }
		redlock.Seed(&cfg, w.seed*10+uint64(id))
		for _, change := range w.change {
			change(&cfg)
		}
		var err error
		if c.client, err = redlock.New(cfg); err != nil {
			return err
		}
	}
	return w.clients[0].client.Enroll(context.Background())
}

// run is a whole life: trouble, then peace, in which everyone gets in and nothing is left behind.
func (w *world) run() error {
	defer func() {
		for _, c := range w.clients {
			_ = c.client.Close()
		}
		for _, s := range w.servers {
			s.stop()
		}
	}()
	if err := w.open(); err != nil {
		return err
	}
	var workers sync.WaitGroup
	for _, c := range w.clients {
		for range 1 + w.random.IntN(4)/3 { // mostly one
			workers.Go(c.work)
		}
	}
	w.trouble()
	w.heal()
	close(w.resting)
	workers.Wait()
	w.settle()
	return nil
}

// settle waits as long as clean-up may take where all nodes can be reached, and looks for what is left. It
// tells nothing where keys expire sooner.
func (w *world) settle() {
	const cleanUp = 4 * time.Second // a stall noticed, a connection made, a release sent again
	time.Sleep(cleanUp)
	if w.ttl < 2*cleanUp {
		return
	}
	for _, s := range w.servers {
		for name, token := range s.locks() {
			w.oracle.report(orphaned, "node-%d still has %s of owner %.8s, though everyone has released", s.index+1, name, token)
		}
	}
}

// work is one worker's life: it takes locks, works under them and releases them, until the world is at
// rest; then once more each lock.
func (c *caller) work() {
	w := c.world
	for {
		select {
		case <-w.resting:
			// Whoever waits gets in: at worst a quarantine has just begun, a lease is left that nobody
			// releases, and each of the others is about to hold for as long as they ever do.
			for _, name := range w.names[:1] {
				ctx, cancel := context.WithTimeout(context.Background(), 40*w.ttl+10*time.Second)
				if err := c.once(ctx, name, true); err != nil {
					w.oracle.report(stuck, "client %d: %s: %v", c.id+1, name, err)
				}
				cancel()
			}
			return
		default:
		}
		name := w.names[0]
		if c.chance(0.2) {
			name = w.names[1]
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.upTo(3*w.ttl))
		if c.chance(0.2) { // so soon that the round is under way
			ctx, cancel = context.WithTimeout(context.Background(), c.upTo(w.ttl/25))
		}
		_ = c.once(ctx, name, false)
		cancel()
		c.sleep(c.upTo(w.ttl / 4))
	}
}

// sleep is a worker's: a suspended process does nothing.
func (c *caller) sleep(d time.Duration) {
	time.Sleep(d)
	c.mu.Lock()
	wake := c.wake
	c.mu.Unlock()
	if wake != nil {
		<-wake
	}
}

// once acquires, works and releases.
func (c *caller) once(ctx context.Context, name string, brief bool) error {
	w := c.world
	lock := c.client.Mutex(name)
	if c.chance(0.5) {
		lock = lock.WithoutRenewal()
	}
	acquire := lock.Acquire
	if !brief && c.chance(0.2) {
		acquire = lock.TryAcquire
	}
	floor := w.oracle.begins(name)
	l, err := acquire(ctx)
	w.events.Add(1)
	if err != nil {
		if errors.Is(err, redlock.ErrInvalid) || errors.Is(err, redlock.ErrClosed) {
			w.oracle.report("no such error", "%v", err)
		}
		return err
	}
	c.sleep(0)
	w.oracle.grants(c.id+1, name, l, floor)
	w.trace("client %d has %s, fence %d", c.id+1, name, l.Fence())
	c.hold(l, name, brief)
	w.oracle.ends(l)
	release, cancel := context.WithTimeout(context.Background(), w.ttl)
	defer cancel()
	_ = l.Release(release)
	w.trace("client %d released %s, fence %d", c.id+1, name, l.Fence())
	return nil
}

// hold works under the lease: it reads both registers, takes its time, and writes.
func (c *caller) hold(l *redlock.Lease, name string, brief bool) {
	w := c.world
	fenced, bare := w.fenced[name], w.bare[name]
	before, admitted := fenced.read(l)
	var plain int
	if valid := l.Valid(); valid {
		plain, _ = bare.read(l)
	} else {
		return
	}
	if !brief {
		for range 1 + int(c.float()*2) {
			c.sleep(c.upTo(w.ttl * 2 / 3))
			w.oracle.look()
			if c.chance(0.2) {
				ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
				_ = l.Extend(ctx)
				cancel()
			}
		}
	}
	if l.Valid() { // and at once
		bare.write(l, plain+1)
	}
	if c.chance(0.2) { // a pause that the holder does not notice
		c.sleep(c.upTo(2 * w.ttl))
	}
	if admitted {
		fenced.write(l, before+1)
	}
}

// heal ends all trouble.
func (w *world) heal() {
	for _, c := range w.clients {
		c.resume()
	}
	for _, s := range w.servers {
		for _, l := range s.links {
			l.mu.Lock()
			held := l.held
			l.mu.Unlock()
			l.hold(requests, -held[requests])
			l.hold(replies, -held[replies])
		}
		s.mu.Lock()
		if s.commands == nil {
			s.startLocked(false)
		}
		s.mu.Unlock()
	}
	w.trace("healed")
}

// suspend stops a process: nothing that it sends or hears is delivered, and its workers do nothing.
func (c *caller) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since, c.wake = time.Now(), make(chan struct{})
		c.reach(+1)
	}
}

func (c *caller) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return
	}
	c.asleep += time.Since(c.since)
	c.since = time.Time{}
	close(c.wake)
	c.wake = nil
	c.reach(-1)
}

// reach holds both directions of all the client's links, or lets them go.
func (c *caller) reach(by int) {
	for _, s := range c.world.servers {
		s.links[c.id].hold(requests, by)
		s.links[c.id].hold(replies, by)
	}
}

// minority is a random set of servers of which no quorum is left without.
func (w *world) minority() []*server {
	some := slices.Clone(w.servers)
	w.random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some[:w.random.IntN((len(some)+1)/2)]
}
