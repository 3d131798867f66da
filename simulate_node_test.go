package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet"
)

// A server is a simulated Redis: miniredis with a clock of its own and data that it may forget.
type server struct {
	world *world
	index int
	rate  float64      // its clock's, against true time
	links []*link      // to each client
	takes atomic.Int64 // what each command of a client takes, in ns; it does not stop other clients' commands

	mu          sync.Mutex // guards the rest
	redis       *miniredis.Miniredis
	believed    map[string]float64    // its fencing tokens before raiseFence
	commands    *fleet.ServerCommands // nil: it is down
	ahead       time.Duration         // of its clock, against true time; changes when it steps
	stepped     time.Duration         // of that, by steps
	steppedAt   time.Time
	jumpedAt    time.Time       // when its clock was last set forward
	saved       []savedKey      // as of the last save
	revived     map[string]bool // tokens that came back with old data: their owners are long gone
	savedAt     time.Time       // by its clock
	savedOf     string          // its history, as INFO names it
	awaited     string          // before this command, whenAwaited is called
	whenAwaited func()
	runs        int             // processes and histories so far, so that each has a name of its own
	deaf        map[*timed]bool // connections that have subscribed
}

// An existence is a server's identity, as its INFO says.
type existence = fleet.Identity

// isStepped reports whether the clock was set to a wrong time, and not back.
func (s *server) isStepped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stepped != 0
}

// nowLocked is the time of the server's clock. s.mu is held.
func (s *server) nowLocked() time.Time {
	elapsed := time.Since(s.world.began)
	return s.world.began.Add(s.ahead + time.Duration(float64(elapsed)*s.rate))
}

// start begins a new process, empty or with the saved data.
func (s *server) start(saved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(saved, s.newRun())
}

// newRun is the identity of a process that begins now. s.mu is held.
func (s *server) newRun() existence {
	e := existence{RunID: s.newID("1"), History: s.newID("2")}
	if s.world.has.durable {
		e.Fsync = "always"
	}
	return e
}

// newID returns an ID that no other process or history of the world has. s.mu is held.
func (s *server) newID(kind string) string {
	s.runs++
	return kind + fmt.Sprintf("%039x", uint64(s.index)<<32|uint64(s.runs))
}

// promoted is the identity of a replica that was promoted. s.mu is held.
func (s *server) promoted(e existence) existence {
	e.Before, e.BeforeOffset, e.History = s.savedOf, 1000, s.newID("2")
	return e
}

func (s *server) startLocked(saved bool, as existence) {
	s.redis = miniredis.NewMiniRedis()
	s.redis.ClockTTL(true)
	s.redis.SetTime(s.nowLocked())
	s.deaf = map[*timed]bool{}
	if saved {
		age := s.nowLocked().Sub(s.savedAt)
		for _, k := range s.saved {
			k.restore(s.redis, age)
			if !s.world.has.durable || as.Before != "" { // a promoted replica has old data, even if restarts forget nothing
				s.revived[k.text] = true
				for _, token := range k.tokens() {
					s.revived[token] = true
				}
			}
		}
	}
	s.commands = fleet.AnswerServerCommands(s.redis, as)
	s.commands.Before(s.before)
}

// between calls do once, just before the server runs this command for a client, and not in a script.
func (s *server) between(command string, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited, s.whenAwaited = command, do
}

func (s *server) before(command string, _ []string) bool {
	if takes := s.takes.Load(); takes > 0 {
		time.Sleep(time.Duration(takes))
	}
	s.mu.Lock()
	do := s.whenAwaited
	if command == s.awaited {
		s.awaited, s.whenAwaited = "", nil
	} else {
		do = nil
	}
	s.mu.Unlock()
	if do != nil {
		do()
	}
	return true
}

func (s *server) stop() { s.end() }

// end ends the process and all its connections. A durable server keeps its data. It reports whether a process was
// running: the caller that ended it starts the next one.
func (s *server) end() bool {
	s.mu.Lock()
	was := s.redis
	running := s.commands
	s.commands = nil
	s.mu.Unlock()
	if running == nil {
		return false
	}
	for _, l := range s.links {
		l.reset()
	}
	was.Close()
	if s.world.has.durable {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saveLocked(running)
	}
	return true
}

func (s *server) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.FlushAll()
}

// step moves the clock by so much. Keys expire at a time of this clock. If it is set ahead, they expire sooner
// (miniredis does that); if it is set back, later.
func (s *server) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(s.nowLocked())
	s.ahead += by
	s.stepped += by
	s.steppedAt = time.Now()
	if by > 0 {
		s.jumpedAt = s.steppedAt
	}
	if by < 0 {
		for _, name := range s.redis.Keys() {
			if left := s.redis.TTL(name); left > 0 {
				s.redis.SetTTL(name, left-by)
			}
		}
	}
	s.redis.SetTime(s.nowLocked())
}

// locks returns the lock keys with their owner tokens; those of old data only if old is set.
func (s *server) locks(old bool) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(s.nowLocked())
	locks := map[string]string{}
	for _, name := range s.world.names {
		if token, err := s.redis.Get(name); err == nil && (old || !s.revived[token]) && !strings.HasPrefix(token, "next:") {
			locks[name] = token
		}
	}
	for _, name := range sharedNames {
		if token, err := s.redis.Get(name); err == nil && (old || !s.revived[token]) && !strings.HasPrefix(token, "next:") {
			locks[name] = token
		}
		for _, token := range s.sharers(name) {
			if old || !s.revived[token] {
				locks[name] = token
			}
		}
	}
	return locks
}

// timeToLive is how long the server keeps the key.
func (s *server) timeToLive(key string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(s.nowLocked())
	return s.redis.TTL(key)
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
	var refused []string
	if client+1 == s.world.has.mute {
		refused = []string{"SUBSCRIBE", "PUBLISH"}
	}
	commands.Serve(&timed{Conn: theirs, server: s, redis: m}, refused...)
	return redis.NewConn(ours, 0, 0), nil
}

// dialer returns the Dial of this server's node for that client.
func (s *server) dialer(client int) func(context.Context) (redis.Conn, error) {
	return func(context.Context) (redis.Conn, error) { return s.dial(client) }
}

// timed sets miniredis to the time of the server's clock whenever something arrives.
type timed struct {
	net.Conn
	server *server
	redis  *miniredis.Miniredis
}

func (t *timed) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.server.mu.Lock()
	now := t.server.nowLocked()
	if bytes.Contains(p[:n], []byte("SUBSCRIBE")) {
		t.server.deaf[t] = true
	}
	t.server.mu.Unlock()
	t.redis.SetTime(now)
	return n, err
}

// deafen breaks the connections that subscribe, and no others.
func (s *server) deafen() {
	s.mu.Lock()
	lost := s.deaf
	s.deaf = map[*timed]bool{}
	s.mu.Unlock()
	for t := range lost {
		_ = t.Close()
	}
}

// forgetScripts sends SCRIPT FLUSH.
func (s *server) forgetScripts() { s.tell("SCRIPT", "FLUSH") }

// tell sends a command over a connection without faults.
func (s *server) tell(command string, args ...any) {
	s.mu.Lock()
	commands := s.commands
	s.mu.Unlock()
	if commands == nil {
		return
	}
	if conn, err := commands.Dial(); err == nil {
		c := redis.NewConn(conn, 0, 0)
		_, _ = c.Do(command, args...)
		_ = c.Close()
	}
}
