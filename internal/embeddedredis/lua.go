package embeddedredis

import (
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// miniredis makes a Lua state with all modules for each EVALSHA, and parses the source again for each SCRIPT LOAD. This
// takes three quarters of the time of a simulated world. The code here runs the same sources in the same interpreter
// and calls the same commands of miniredis. But it compiles each source once per process, and reuses Lua states.
// Special cases (MULTI, a script in a script, cjson, SELECT in a script) are left to miniredis.

// scripts are the scripts of one server that run here.
type scripts struct {
	mu    sync.Mutex // guards bySHA; nothing is called under it
	bySHA map[string]*compiled
}

// compiled is one compiled source. All servers share it, and it never changes.
type compiled struct {
	sha, source string
	proto       *lua.FunctionProto
}

var (
	sources sync.Map // source -> *compiled
	// idle interpreters. It is not a sync.Pool: with the race detector, that forgets one in four, and making another is
	// dearer than the script.
	idle = make(chan *interpreter, 64)
)

// compile returns nil for sources that miniredis must run: those with an error, and those that need what is missing
// here.
func compile(source string) *compiled {
	if known, ok := sources.Load(source); ok {
		return known.(*compiled)
	}
	for _, word := range []string{"cjson", "setresp", "SELECT", "select", "require", "server.", "os.", "debug"} {
		if strings.Contains(source, word) {
			return nil
		}
	}
	chunk, err := parse.Parse(strings.NewReader(source), "<string>")
	if err != nil {
		return nil
	}
	proto, err := lua.Compile(chunk, "")
	if err != nil {
		return nil
	}
	sum := sha1.Sum([]byte(source))
	c := &compiled{hex.EncodeToString(sum[:]), source, proto}
	sources.Store(source, c)
	return c
}

func (s *scripts) find(sha string) *compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bySHA[sha]
}

func (s *scripts) add(c *compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySHA == nil {
		s.bySHA = map[string]*compiled{}
	}
	s.bySHA[c.sha] = c
}

func (s *scripts) all() []*compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.bySHA))
}

func (s *scripts) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.bySHA)
}

// lua answers EVAL, EVALSHA and SCRIPT LOAD. If it returns false, miniredis answers.
func (s *ServerCommands) lua(peer *server.Peer, cmd string, args []string) bool {
	script, multi, subscribed := circumstances(peer)
	if script || subscribed || peer.ClientName == s.nonce {
		return false
	}
	if cmd == "SCRIPT" {
		if c := loads(args); c != nil && !multi {
			s.scripts.add(c)
			peer.WriteBulk(c.sha)
			return true
		}
		s.handOver()
		if len(args) > 0 && strings.EqualFold(args[0], "FLUSH") {
			s.scripts.clear()
		}
		return false
	}
	if multi {
		s.handOver()
		return false
	}
	if len(args) < 2 {
		return false
	}
	c := s.scripts.find(args[0])
	if cmd == "EVAL" {
		c = compile(args[0])
	}
	n, err := strconv.Atoi(args[1])
	if c == nil || err != nil || n < 0 || n > len(args)-2 {
		return false
	}
	if s.run(peer, c, args[2:2+n], args[2+n:]) && cmd == "EVAL" {
		s.scripts.add(c)
	}
	return true
}

// loads returns the script of SCRIPT LOAD, if it can run here.
func loads(args []string) *compiled {
	if len(args) != 2 || !strings.EqualFold(args[0], "LOAD") {
		return nil
	}
	return compile(args[1])
}

// handOver loads our scripts into miniredis, so that it answers as if it had loaded them itself.
func (s *ServerCommands) handOver() {
	for _, c := range s.scripts.all() {
		loader := discardPeer()
		loader.ClientName = s.nonce
		s.server.Dispatch(loader, []string{"SCRIPT", "LOAD", c.source})
	}
}

// run executes a script with the server locked, as miniredis does, and writes its reply.
func (s *ServerCommands) run(peer *server.Peer, c *compiled, keys, args []string) bool {
	context := s.nestedContext(peer)
	s.redis.Lock()
	defer s.redis.Unlock()
	i := idleInterpreter()
	i.server, i.sha, i.refused = s.server, c.sha, s.refusedTo(peer)
	i.peer = server.NewPeer(i.out)
	i.peer.Ctx = context
	globals := i.state.G.Global
	globals.RawSetString("KEYS", i.list(keys))
	globals.RawSetString("ARGV", i.list(args))
	i.state.Push(i.state.NewFunctionFromProto(c.proto))
	if err := i.state.PCall(0, lua.MultRet, nil); err != nil {
		i.state.Close() // its state is unknown
		peer.WriteError("ERR Error compiling script (new function): " + err.Error())
		return false
	}
	i.reply(peer, i.state.Get(1))
	i.state.SetTop(0)
	i.server, i.peer = nil, nil
	select {
	case idle <- i:
	default:
	}
	return true
}

// idleInterpreter returns one that runs no script.
func idleInterpreter() *interpreter {
	select {
	case i := <-idle:
		return i
	default:
		return newInterpreter()
	}
}
