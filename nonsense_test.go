package redlock_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// One server of three says nonsense instead of some of its replies, whatever these are; the other two are honest, and a little
// slower, so that the nonsense is heard. It may cost a grant. But no process ends by a panic, no call hangs, no two clients
// hold a lock, and nothing of it lasts. REDLOCK_TRIALS=60 runs so many seeds.
func TestOneServerSaysNonsense(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	all, urls := proxies(t, f)
	for _, honest := range all[:2] {
		honest.lies(func(_ string, reply []byte) []byte { time.Sleep(2 * time.Millisecond); return reply })
	}
	for seed := range uint64(trials(2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var clients []*redlock.Client
			for range 2 {
				clients = append(clients, open(t, f, func(cfg *redlock.Config) {
					cfg.Nodes, cfg.TTL, cfg.MaxTTL = redlock.Nodes(urls...), time.Second, 2*time.Second
					cfg.NodeTimeout = 300 * time.Millisecond
				}))
			}
			n := &nonsense{random: rand.New(rand.NewPCG(seed, 1))}
			n.oneIn = 1 + n.random.IntN(6)
			all[2].lies(n.reply)
			useEverything(t, clients, seed)
			all[2].lies(nil)
			require.NotZero(t, n.said.Load())
			for _, c := range clients {
				require.Eventually(t, func() bool { return noneWithoutVote(c.Status(soon(t))) }, 20*time.Second, 10*time.Millisecond)
				for i, kind := range everyKind {
					l, err := kind.lock(c).Acquire(soon(t))
					require.NoError(t, err, i)
					_ = l.Release(soon(t)) // on a busy machine, a lease of a second may be over
				}
			}
		})
	}
}

// everyKind is locks of every kind; name is "" if several may have it.
var everyKind = []struct {
	name string
	lock func(*redlock.Client) redlock.Lock
}{
	{"m", func(c *redlock.Client) redlock.Lock { return c.Mutex("m") }},
	{"m", func(c *redlock.Client) redlock.Lock { return c.Mutex("m").Fair() }},
	{"m", func(c *redlock.Client) redlock.Lock { return c.Mutex("m", "n") }},
	{"one of one", func(c *redlock.Client) redlock.Lock { return c.Semaphore("one of one", 1) }},
	{"two of three", func(c *redlock.Client) redlock.Lock { return c.Semaphore("two of three", 3).WithPermits(2) }},
	{"r", func(c *redlock.Client) redlock.Lock { return c.RWMutex("r").Writer() }},
	{"", func(c *redlock.Client) redlock.Lock { return c.RWMutex("r").Reader() }},
}

// useEverything has each client use locks of all kinds, in every way, for some seconds.
func useEverything(t *testing.T, clients []*redlock.Client, seed uint64) {
	var (
		mu      sync.Mutex // guards holders
		holders = map[string]*redlock.Lease{}
		tickets = make(chan redlock.Ticket, 1000)
		all     sync.WaitGroup
		until   = time.Now().Add(2500 * time.Millisecond)
	)
	takes := func(name string, l *redlock.Lease) {
		mu.Lock()
		defer mu.Unlock()
		if other := holders[name]; name != "" && other != nil && other.Valid() && l.Valid() {
			t.Errorf("two holders of %s", name)
		}
		holders[name] = l
	}
	gives := func(name string, l *redlock.Lease) {
		mu.Lock()
		defer mu.Unlock()
		if holders[name] == l {
			delete(holders, name)
		}
	}
	handOver := func(ctx context.Context, c *redlock.Client, l *redlock.Lease) {
		if ticket, err := l.Detach(ctx); err == nil {
			tickets <- ticket
		}
		select {
		case ticket := <-tickets:
			if adopted, err := c.Adopt(ctx, ticket); err == nil {
				takes("m", adopted)
				gives("m", adopted)
				_ = adopted.Release(context.Background())
			}
		default:
		}
	}
	use := func(c *redlock.Client, random *rand.Rand) {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		kind := everyKind[random.IntN(len(everyKind))]
		acquire := kind.lock(c).Acquire
		if random.IntN(2) == 0 {
			acquire = kind.lock(c).TryAcquire
		}
		l, err := acquire(ctx)
		if err != nil {
			return
		}
		takes(kind.name, l)
		if random.IntN(3) == 0 {
			l.Wanted()
		}
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		switch random.IntN(6) {
		case 0:
			_ = l.Extend(ctx)
		case 1:
			if kind.name == "m" {
				gives("m", l)
				handOver(ctx, c, l)
			}
		case 2:
			_, _ = c.Inspect(ctx, "two of three")
			_, _ = c.Inspect(ctx, "m")
		case 3:
			c.Status(ctx)
		case 4:
			_, _ = c.Trial(ctx)
		case 5:
			if random.IntN(20) == 0 {
				time.Sleep(time.Second) // for a renewal
			}
		}
		gives(kind.name, l)
		_ = l.Release(context.Background())
	}
	for i, c := range clients {
		for worker := range 3 {
			random := rand.New(rand.NewPCG(seed, uint64(100+10*i+worker)))
			all.Go(func() {
				for time.Now().Before(until) {
					use(c, random)
				}
			})
		}
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		panic("a call hangs") // with the stacks of all
	}
}

// nonsense says something else instead of one reply in so many. It never makes a grant of a refusal: whoever grants to
// everybody gives a lock to two, with another that does so.
type nonsense struct {
	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	oneIn  int
	said   atomic.Int64
}

func (n *nonsense) reply(command string, reply []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.random.IntN(n.oneIn) > 0 || command == "SET" || command == "SCRIPT" && n.random.IntN(20) > 0 {
		return reply
	}
	said := hear(bufio.NewReader(bytes.NewReader(reply)))
	was := said.kind
	if command == "extend" && was == '*' { // the numbers say which of many leases are extended
		if i := n.random.IntN(len(said.list)); i == 0 {
			said.list[0] = &spoken{kind: ':', text: one(n.random, someNumbers)}
		} else {
			said.list[i] = &spoken{kind: one(n.random, []byte("_$*-")), text: "x"}
		}
	} else {
		said.garble(n.random, true)
	}
	if was != ':' && said.kind == ':' { // a number is a grant
		return reply
	}
	n.said.Add(1)
	var b bytes.Buffer
	said.say(&b)
	return b.Bytes()
}

var (
	someNumbers = []string{"-1", "0", "1", "-2", "2147483648", "9007199254740991", "9007199254740992", "9223372036854775807",
		"-9223372036854775808", "-9223372036854775807", "9223372036854", "-9223372036855", "1764312000000000"}
	someTexts = []string{"", "x", "-1", "9223372036854775807", "0,0,0", "-1,5,99999999999999999999", "readers", "PERMITS", "held",
		"taken", "behind", "quarantine", "differs", "key", "ballot", "unready", "late", "new", "used", "unjudged", "missing",
		"ready", "permit -1,7/-5 x", "permit 1/9 next:" + strings.Repeat("0", 32), "reader x", "next:" + strings.Repeat("0", 32)}
	someErrors = []string{"NOSCRIPT x", "ERR x", "BUSY x", "WRONGTYPE x", "NOPERM x", "LOADING x", "OOM x", "READONLY x",
		"MISCONF x", "NOAUTH x"}
)

func one[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }

// A spoken is a reply in the protocol of Redis. Its kind is '_' for nil, else the first byte of the reply.
type spoken struct {
	kind byte
	text string
	list []*spoken
}

func hear(r *bufio.Reader) *spoken {
	line, _ := r.ReadString('\n')
	if line == "" {
		return &spoken{kind: '$'}
	}
	s := &spoken{kind: line[0], text: strings.TrimSuffix(line[1:], "\r\n")}
	n, _ := strconv.Atoi(s.text)
	switch {
	case (s.kind == '$' || s.kind == '*') && n < 0:
		s.kind = '_'
	case s.kind == '$':
		text := make([]byte, n+len("\r\n"))
		_, _ = io.ReadFull(r, text)
		s.text = string(text[:n])
	case s.kind == '*':
		for range n {
			s.list = append(s.list, hear(r))
		}
	}
	return s
}

func (s *spoken) say(b *bytes.Buffer) {
	switch s.kind {
	case '_':
		b.WriteString("$-1\r\n")
	case '$':
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(s.text), s.text)
	case '*':
		fmt.Fprintf(b, "*%d\r\n", len(s.list))
		for _, element := range s.list {
			element.say(b)
		}
	default:
		fmt.Fprintf(b, "%c%s\r\n", s.kind, s.text)
	}
}

// garble makes it another reply. top: it is the whole reply.
func (s *spoken) garble(random *rand.Rand, top bool) {
	switch {
	case s.kind == '*' && len(s.list) > 0 && random.IntN(8) > 0:
		switch i := random.IntN(len(s.list)); random.IntN(15) {
		case 0:
			s.list = append(s.list[:i], s.list[i+1:]...)
		case 1:
			s.list = append(s.list, s.list[i])
		case 2:
			s.list = s.list[:i]
		default:
			s.list[i].garble(random, false)
		}
	case strings.Count(s.text, ":") > 5: // INFO
		lines := strings.Split(s.text, "\r\n")
		for range 1 + random.IntN(4) {
			i := random.IntN(len(lines))
			name, _, _ := strings.Cut(lines[i], ":")
			lines[i] = name + ":" + one(random, append(someNumbers, someTexts...))
		}
		s.text = strings.Join(lines, "\r\n")
	case s.kind == ':' && random.IntN(10) < 6:
		s.text = one(random, someNumbers)
	case s.kind == '$' && random.IntN(10) < 6:
		s.text = one(random, someTexts)
	case !top:
		*s = spoken{kind: one(random, []byte("_$:*")), text: one(random, someNumbers)}
	default:
		switch *s = (spoken{kind: one(random, []byte("_$*-")), text: one(random, someTexts)}); s.kind {
		case '-':
			s.text = one(random, someErrors)
		case '*':
			for range random.IntN(9) {
				s.list = append(s.list, &spoken{kind: one(random, []byte("_$:")), text: one(random, someNumbers)})
			}
			if len(s.list) > 1 && random.IntN(3) > 0 {
				s.list[0] = &spoken{kind: '$', text: one(random, someTexts)}
			}
		}
	}
}
