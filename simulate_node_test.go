package redlock_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet"
)

// A server is a simulated Redis: miniredis, with a clock of its own, and what it may forget.
type server struct {
	world *world
	index int
	rate  float64 // its clock's, against true time
	links []*link // to each client

	mu        sync.Mutex // guards the rest
	redis     *miniredis.Miniredis
	commands  *fleet.ServerCommands // nil: it is down
	ahead     time.Duration         // of its clock, against true time; changes when it steps
	stepped   time.Duration         // of that, by steps
	steppedAt time.Time
	saved     []savedKey      // as of the last save
	revived   map[string]bool // tokens that came back with what was saved: their owners are long gone
	savedAt   time.Time       // by its clock
}

type savedKey struct {
	name, text string
	fields     map[string]string // of a hash
	left       time.Duration     // 0: without expiry
}

// now is what the server's clock says.
func (s *server) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nowLocked()
}

func (s *server) nowLocked() time.Time {
	elapsed := time.Since(s.world.began)
	return s.world.began.Add(s.ahead + time.Duration(float64(elapsed)*s.rate))
}

// start begins a new process, with what was saved or with nothing.
func (s *server) start(saved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(saved)
}

func (s *server) startLocked(saved bool) {
	s.redis = miniredis.NewMiniRedis()
	s.redis.ClockTTL(true)
	s.redis.SetTime(s.nowLocked())
	if saved {
		age := s.nowLocked().Sub(s.savedAt)
		for _, k := range s.saved {
			k.restore(s.redis, age)
			s.revived[k.text] = true
		}
	}
	s.commands = fleet.AnswerServerCommands(s.redis, fleet.Identity{})
}

// stop ends the process, and every connection with it.
func (s *server) stop() {
	s.mu.Lock()
	was := s.redis
	running := s.commands != nil
	s.commands = nil
	s.mu.Unlock()
	if running {
		for _, l := range s.links {
			l.reset()
		}
		was.Close()
	}
}

// save keeps what there is, as an RDB does.
func (s *server) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.savedAt = nil, s.nowLocked()
	s.redis.SetTime(s.savedAt)
	for _, name := range s.redis.Keys() {
		k := savedKey{name: name, left: s.redis.TTL(name)}
		if s.redis.Type(name) == "hash" {
			k.fields = map[string]string{}
			names, _ := s.redis.HKeys(name)
			for _, f := range names {
				k.fields[f] = s.redis.HGet(name, f)
			}
		} else {
			k.text, _ = s.redis.Get(name)
		}
		s.saved = append(s.saved, k)
	}
}

func (k savedKey) restore(m *miniredis.Miniredis, age time.Duration) {
	if k.left > 0 && k.left <= age {
		return
	}
	for f, v := range k.fields {
		m.HSet(k.name, f, v)
	}
	if k.fields == nil {
		_ = m.Set(k.name, k.text)
	}
	if k.left > 0 {
		m.SetTTL(k.name, k.left-age)
	}
}

func (s *server) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.FlushAll()
}

// step sets the clock by so much. Keys expire at a time of the clock: set ahead, they expire sooner, which
// miniredis sees to; set back, later.
func (s *server) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(s.nowLocked())
	s.ahead += by
	s.stepped += by
	s.steppedAt = time.Now()
	if by < 0 {
		for _, name := range s.redis.Keys() {
			if left := s.redis.TTL(name); left > 0 {
				s.redis.SetTTL(name, left-by)
			}
		}
	}
	s.redis.SetTime(s.nowLocked())
}

// locks are the lock keys there, with their owners' tokens, but for those of old data.
func (s *server) locks() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(s.nowLocked())
	locks := map[string]string{}
	for _, name := range s.world.names {
		if token, err := s.redis.Get(name); err == nil && !s.revived[token] {
			locks[name] = token
		}
	}
	return locks
}

// dial opens a client's connection.
func (s *server) dial(client int) (redis.Conn, error) {
	s.mu.Lock()
	commands, m := s.commands, s.redis
	s.mu.Unlock()
	if commands == nil {
		return nil, errors.New("connection refused")
	}
	ours, theirs := s.links[client].connect()
	commands.Serve(&timed{Conn: theirs, server: s, redis: m})
	return redis.NewConn(ours, 0, 0), nil
}

// node is the server as that client knows it.
func (s *server) dialer(client int) func(context.Context) (redis.Conn, error) {
	return func(context.Context) (redis.Conn, error) { return s.dial(client) }
}

// timed tells miniredis the time of the server's clock whenever something arrives.
type timed struct {
	net.Conn
	server *server
	redis  *miniredis.Miniredis
}

func (t *timed) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.redis.SetTime(t.server.now())
	return n, err
}
