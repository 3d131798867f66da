package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock"
)

// A world is one simulated run: servers, clients, their links, and the oracle. It lives in a testing/synctest bubble,
// so its time is virtual.
type world struct {
	seed    uint64
	random  *rand.Rand // of the schedule alone
	began   time.Time
	ttl     time.Duration
	has     traits
	names   []string
	servers []*server
	clients []*caller
	raised  bool // one server was told huge ballots
	fenced  map[string]*register
	bare    map[string]*register // without fencing tokens
	oracle  *oracle
	change  []func(*redlock.Config)
	unaware bool // the clients' clocks do not count suspend

	strike atomic.Pointer[func()] // called as soon as somebody has acquired a lock; nil: nothing is

	troubled atomic.Bool // there may be faults
	closed   atomic.Bool // a client was closed among them
	healed   time.Time

	resting   chan struct{} // closed when the faults are over and everything is healed
	record    *record
	events    atomic.Int64
	deception *deception // of a world that has one
	clock     int        // the server whose clock may step: one, as docs/safety.md assumes
}

const maxStep = 60 * time.Second

// newWorld makes the world of this seed, in which one defence is off, or none.
func newWorld(seed uint64, off string) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{seed: seed, random: r, began: time.Now(), names: []string{"a", "b"}[:2:2], resting: make(chan struct{}),
		fenced: map[string]*register{}, bare: map[string]*register{}}
	w.record = &record{began: w.began}
	w.ttl = []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second}[r.IntN(3)]
	w.has = drawTraits(r, shownBy[off])
	w.has.shares, w.has.fairWriters = drawShared(seed, shownBy[off])
	w.has.elects = drawApart(seed, 13, 10, leading, shownBy[off])
	w.has.dines = drawApart(seed, 17, 20, dining, shownBy[off])
	w.has.outOfStep = drawApart(seed, 19, 20, quietStep, shownBy[off])
	w.has.stays = drawApart(seed, 23, 20, staying, shownBy[off])
	w.has.ofKind()
	w.has.deceives = drawApart(seed, 43, 8, deceiving, shownBy[off]) && w.has.differs == 0 && !w.has.durable && !w.has.ordered
	// With Durable it is not safe (docs/safety.md).
	w.has.borrows = drawApart(seed, 59, 5, borrowing, shownBy[off]) && !w.has.durable
	// No other world has minimum holds: they need longer leases, and would change what seeds are known for.
	if isKind("minhold") || drawApart(seed, 53, 0, minHolding, shownBy[off]) {
		w.holdMinimum()
	}
	if _, ok := redlock.Switches[off]; ok && off != "agreed configuration" {
		w.has.differs = 0 // a switch may change the configuration too
	}
	w.oracle = newOracle(w)
	for _, name := range append(w.names, sharedNames...) {
		w.fenced[name] = &register{oracle: w.oracle, name: name + " (fenced)", fenced: true, passed: map[*redlock.Lease]bool{}}
		w.bare[name] = &register{oracle: w.oracle, name: name, passed: map[*redlock.Lease]bool{}}
	}
	if w.has.deceives {
		w.has.nodes = 3
		w.deception = drawDeception(seed, w.ttl)
	}
	w.clock = r.IntN(w.has.nodes)
	if w.has.differs != 0 {
		w.clock %= (w.has.nodes - 1) / 2 // it may boot without data, as only a minority does
	}
	return w
}

// slow is the longest time that a message takes where nothing is wrong.
func (w *world) slow() time.Duration { return min(w.ttl/25, 100*time.Millisecond) }

// open starts the servers and the clients.
func (w *world) open() error {
	spread := min(100*time.Millisecond, w.ttl/20) / 4 // of clocks in good order
	for i := range w.has.nodes {
		s := &server{world: w, index: i, revived: map[string]bool{}, rate: 1 + (w.random.Float64()-0.5)/5000, ahead: time.Duration(w.random.Int64N(int64(spread)))}
		if w.has.deceives && i == w.apart() {
			s.ahead += w.deception.apart
		}
		for c := range w.has.clients {
			l := newLink(w.seed*1000+uint64(i*10+c), w.slow())
			l.heard = w.record.hears(c, i)
			s.links = append(s.links, l)
		}
		s.start(false)
		w.servers = append(w.servers, s)
	}
	for id := range w.has.clients {
		c := &caller{world: w, id: id, rate: 1 + (w.random.Float64()-0.5)/100,
			origin: time.Duration(w.began.UnixNano() + w.random.Int64N(int64(2*time.Hour)) - int64(time.Hour))}
		if w.has.closes {
			c.rate = 1 // a worker that sleeps as long as the client wakes at the same time
		}
		w.clients = append(w.clients, c)
		c.cfg = w.config(c)
		if err := c.open(); err != nil {
			return err
		}
		if id == 0 { // before the client that differs
			if err := c.client.Enroll(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}

// config is the configuration of this client. All clients have the same, except one that differs.
func (w *world) config(c *caller) redlock.Config {
	cfg := redlock.Config{TTL: w.ttl, MaxTTL: w.ttl, MaxClockSkew: w.ttl / 10, Clock: c, Durable: w.has.durable}
	for i, s := range w.servers {
		cfg.Nodes = append(cfg.Nodes, redlock.Node{Name: fmt.Sprintf("node-%d", i+1), Dial: s.dialer(c.id)})
	}
	if w.has.deceives {
		w.deception.configure(&cfg, c.id)
	}
	if w.has.holds {
		cfg.TTL = w.ttl * 3 / 10
	}
	cfg.Hooks.Extended = func(redlock.LeaseInfo, time.Duration, time.Duration) { w.oracle.look() }
	if c.id+1 == w.has.blocks {
		b := &blocker{world: w, random: rand.New(rand.NewPCG(w.seed, 99))}
		cfg.Hooks = b.hooks()
		cfg.Logger = slog.New(b)
	}
	if c.id+1 == w.has.differs {
		w.has.differ(&cfg)
	}
	redlock.Seed(&cfg, w.seed*10+uint64(c.id))
	if w.has.light {
		redlock.AlwaysLight(&cfg)
	}
	if w.seed%4 == 3 {
		redlock.OneByOne(&cfg)
	}
	for _, change := range w.change {
		change(&cfg)
	}
	return cfg
}

// run is the whole life of a world. First there are faults. Then comes a calm time, in which every waiter gets in and
// nothing may be left behind. At the end every answer can be judged, because nothing is wrong.
func (w *world) run() error {
	defer func() {
		for _, c := range w.clients {
			if c.client != nil {
				_ = c.client.Close()
			}
		}
		if w.has.blocks != 0 {
			time.Sleep(2 * w.ttl) // a hook may still take so long
		}
		for _, s := range w.servers {
			s.stop()
		}
	}()
	if err := w.open(); err != nil {
		return err
	}
	var workers sync.WaitGroup
	var all []*worker
	for _, c := range w.clients {
		for range 1 + w.random.IntN(4)/3 { // mostly one
			k := &worker{caller: c, index: len(all), random: rand.New(rand.NewPCG(w.seed, uint64(len(all)+2)))}
			all = append(all, k)
			workers.Go(k.work)
		}
	}
	if w.has.elects {
		ctx, stop := context.WithCancel(context.Background())
		var observers sync.WaitGroup
		observers.Go(func() { w.observe(ctx) })
		defer observers.Wait()
		defer stop()
	}
	w.troubled.Store(true)
	w.trouble()
	w.troubled.Store(false)
	w.heal()
	close(w.resting)
	workers.Wait()
	w.awaitHolds()
	w.settle()
	w.judge(all)
	return nil
}

// cleanUp is how long clean-up may take after a fault: to notice a stall, to connect, to send a release again.
const cleanUp = 4 * time.Second

func (w *world) isResting() bool {
	select {
	case <-w.resting:
		return true
	default:
		return false
	}
}

// settle waits until everything that the faults left is cleaned up, and reports what is not. It reports nothing where
// keys expire sooner: judge does.
func (w *world) settle() {
	if w.ttl <= 2*cleanUp {
		return
	}
	time.Sleep(cleanUp)
	// A client that was closed while a node was out of its reach has left its keys there to expire. What it had sent
	// there arrived when the node was reached again. Where a clock was set back meanwhile, that takes long.
	// So does the rest of a minimum hold.
	stepped := !w.servers[w.clock].steppedAt.IsZero()
	if !w.closed.Load() && !(w.has.holds && stepped) || time.Since(w.healed) > w.ttl+cleanUp && !stepped {
		w.lookForOrphans()
	}
	for _, c := range w.clients {
		if n := redlock.UnderWay(c.client); n != 0 && !w.closed.Load() {
			w.oracle.report(orphaned, "client %d still has %d attempts under way, though everyone has released", c.id, n)
		}
	}
}

func (w *world) lookForOrphans() {
	for _, s := range w.servers {
		for name, token := range s.locks(false) {
			w.oracle.report(orphaned, "node-%d still has %s of owner %.8s, though everyone has released", s.index+1, name, token)
		}
	}
}

// heal ends all faults.
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
			s.startLocked(s.world.has.durable, s.newRun())
		}
		s.mu.Unlock()
		s.lowerFence(hugeBallot)
	}
	if w.has.deceives {
		w.servers[w.apart()].step(-w.deception.apart)
	}
	w.healed = time.Now()
	w.trace("healed")
}

// minority is a random set of servers. The servers without it are still a quorum.
func (w *world) minority() []*server {
	some := slices.Clone(w.servers)
	w.random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some[:w.random.IntN((len(some)+1)/2)]
}
