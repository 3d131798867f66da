package fleet

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// For each EVALSHA miniredis makes a Lua state with all its modules, and for each SCRIPT LOAD it parses the source
// again. That is three quarters of what a simulated world costs. Here the same sources run in the same interpreter and
// call the same commands of miniredis, but sources are compiled once a process and states are used again. What is not
// plain (MULTI, a script within a script, cjson, another database of the script's own) is left to miniredis.

// scripts are what was loaded into one server and is run here.
type scripts struct {
	mu    sync.Mutex // guards bySHA; nothing is called under it
	bySHA map[string]*compiled
}

// compiled is one source. It is the same for all servers and never changes.
type compiled struct {
	sha, source string
	proto       *lua.FunctionProto
}

var (
	sources sync.Map  // source -> *compiled
	idle    sync.Pool // of *interpreter
)

// compile returns nil where miniredis is to see for itself: the source has an error, or wants what is not here.
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

// lua answers EVAL, EVALSHA and SCRIPT LOAD, or returns false: then miniredis does.
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

// loads returns the script of SCRIPT LOAD, if it is one for us.
func loads(args []string) *compiled {
	if len(args) != 2 || !strings.EqualFold(args[0], "LOAD") {
		return nil
	}
	return compile(args[1])
}

// handOver makes miniredis know our scripts, so that it answers as if it had loaded them.
func (s *ServerCommands) handOver() {
	for _, c := range s.scripts.all() {
		loader := server.NewPeer(bufio.NewWriter(io.Discard))
		loader.ClientName = s.nonce
		s.server.Dispatch(loader, []string{"SCRIPT", "LOAD", c.source})
	}
}

// run executes a script with the server locked, as miniredis does, and writes its reply.
func (s *ServerCommands) run(peer *server.Peer, c *compiled, keys, args []string) bool {
	context := s.nestedContext(peer)
	s.redis.Lock()
	defer s.redis.Unlock()
	i, _ := idle.Get().(*interpreter)
	if i == nil {
		i = newInterpreter()
	}
	i.server, i.sha, i.refused = s.server, c.sha, s.refusedTo(peer)
	i.peer = server.NewPeer(i.out)
	i.peer.Ctx = context
	globals := i.state.G.Global
	globals.RawSetString("KEYS", i.list(keys))
	globals.RawSetString("ARGV", i.list(args))
	i.state.Push(i.state.NewFunctionFromProto(c.proto))
	if err := i.state.PCall(0, lua.MultRet, nil); err != nil {
		i.state.Close() // nobody knows in which state it is
		peer.WriteError("ERR Error compiling script (new function): " + err.Error())
		return false
	}
	i.reply(peer, i.state.Get(1))
	i.state.SetTop(0)
	i.server, i.peer = nil, nil
	idle.Put(i)
	return true
}
